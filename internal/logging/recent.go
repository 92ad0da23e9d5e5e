package logging

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
)

// Recent has the last lines of a log of level warn and above.
type Recent struct {
	most int

	mu      sync.Mutex
	writing bytes.Buffer
	lines   []string // the latest last
	written int      // lines, since the start
}

// Keep returns a handler that writes to another one, and keeps the last lines.
func Keep(to slog.Handler, most int) (slog.Handler, *Recent) {
	r := &Recent{most: most}
	return &keeper{Handler: to, text: slog.NewTextHandler(&r.writing, nil), recent: r}, r
}

// Lines returns the last lines, the latest last, and how many were written since the start.
func (r *Recent) Lines() (lines []string, written int) {
	if r == nil {
		return nil, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines), r.written
}

// keeper is a slog.Handler.
type keeper struct {
	slog.Handler
	text   slog.Handler // writes to recent.writing
	recent *Recent
}

func (k *keeper) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &keeper{k.Handler.WithAttrs(attrs), k.text.WithAttrs(attrs), k.recent}
}

func (k *keeper) WithGroup(name string) slog.Handler {
	return &keeper{k.Handler.WithGroup(name), k.text.WithGroup(name), k.recent}
}

// Enabled implements slog.Handler. Lines are kept that the other handler leaves out, too.
func (k *keeper) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || k.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (k *keeper) Handle(ctx context.Context, record slog.Record) error {
	if record.Level >= slog.LevelWarn {
		k.recent.keep(func() { _ = k.text.Handle(ctx, record) }) // a buffer takes all
	}
	if !k.Handler.Enabled(ctx, record.Level) {
		return nil
	}
	return k.Handler.Handle(ctx, record)
}

func (r *Recent) keep(write func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing.Reset()
	write()
	r.lines = append(r.lines, string(bytes.TrimSpace(r.writing.Bytes())))
	r.lines = r.lines[max(len(r.lines)-r.most, 0):]
	r.written++
}
