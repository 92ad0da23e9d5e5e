package otlp

import (
	"context"
	"log/slog"
)

// levelled handles what another handler would, so that --log-level goes for
// what is sent, too.
type levelled struct {
	slog.Handler
	as slog.Handler
}

func (l levelled) Enabled(ctx context.Context, level slog.Level) bool {
	return l.as.Enabled(ctx, level) && l.Handler.Enabled(ctx, level)
}

func (l levelled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return levelled{Handler: l.Handler.WithAttrs(attrs), as: l.as}
}

func (l levelled) WithGroup(name string) slog.Handler {
	return levelled{Handler: l.Handler.WithGroup(name), as: l.as}
}
