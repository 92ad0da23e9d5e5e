package replay

import (
	"context"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Fleet answers scope=fleet: the stores and spools of all sidecars as one
// history. Its methods may be called from many goroutines at once.
type Fleet interface {
	// Open asks every part of the fleet for its share of what q selects, and
	// returns once each has begun to answer or is known to be missing. Missing
	// parts are a *wire.Error with partial_fleet that names them, unless q says
	// that a partial answer will do.
	Open(ctx context.Context, q FleetQuery) (FleetStream, error)
	// Lookup finds the (ts, id) of an event by its id: the lowest, where several
	// stores have it; eventlog.ErrNotFound if none has. A part that could not be
	// asked is a *wire.Error with partial_fleet unless partial is set.
	Lookup(ctx context.Context, topic, id string, partial bool) (eventlog.Point, error)
}

// FleetQuery selects events of a topic in the whole fleet.
type FleetQuery struct {
	Topic string
	Scan  eventlog.ScanQuery
	// Limit is how many events the caller will take; 0: all there are.
	Limit int
	// Behind are the parts that an earlier page could not ask: each goes on from
	// where it was asked last, not from Scan.After.
	Behind []Behind
	// Partial lets an answer leave out what cannot be asked.
	Partial bool
	// Continued says that earlier pages exist whose events are not known here.
	Continued bool
}

// Behind is a part of the fleet that has not come as far as the others.
type Behind struct {
	Part string          // a store's id, or a sidecar's name where only its spool is meant
	At   *eventlog.Point // nil: from the start of the replay
}

// FleetStream is an answer under way, for one goroutine.
type FleetStream interface {
	// Next returns the next event: its place, and its JSON text, which is valid
	// until the next call. io.EOF is the whole end; any other error says that
	// the answer cannot be completed.
	Next() (eventlog.Point, []byte, error)
	// Missing names what was left out, as people know it: "node-3
	// (10.0.0.3:8083)". It is final once Next has returned an error.
	Missing() []string
	// Behind is what a cursor has to remember beside the last event's place.
	Behind() []Behind
	// Close ends the stream and waits for what it started.
	Close()
}
