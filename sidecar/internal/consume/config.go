package consume

import (
	"log/slog"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/receive"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// Config is what Consumers need; every field is required.
type Config struct {
	Groups *group.Manager
	Log    eventlog.Reader
	Lookup deadletter.Lookup // finds the events that a stream sends again
	Bodies *receive.Bodies
	Limits wire.Limits
	Bounds session.Bounds
	NodeID string
	Logger *slog.Logger
}
