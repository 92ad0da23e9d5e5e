package replay

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Fleet answers scope=fleet: the stores and spools of all sidecars as one history. Its methods may
// be called from many goroutines at once.
type Fleet interface {
	// Open asks every part of the fleet for its share of what q selects, and returns once each has
	// begun to answer or is known to be missing. Missing parts are a *wire.Error with partial_fleet
	// that names them, unless q says that a partial answer will do.
	Open(ctx context.Context, q FleetQuery) (FleetStream, error)
	// Lookup finds the (ts, id) of an event by its id: the lowest, where several stores have it;
	// eventlog.ErrNotFound if none has. A part that could not be asked is a *wire.Error with
	// partial_fleet unless partial is set.
	Lookup(ctx context.Context, topic, id string, partial bool) (eventlog.Point, error)
	// Members asks every sidecar for its identity. This sidecar comes first; sidecars that do not
	// answer in time are listed with the reason.
	Members(ctx context.Context) []Member
}

// FleetQuery selects events of a topic in the whole fleet.
type FleetQuery struct {
	Topic string
	Scan  eventlog.ScanQuery
	// Limit is how many events the caller will take; 0: all there are.
	Limit int
	// Behind are the parts that an earlier page could not ask: each goes on from where it was asked
	// last, not from Scan.After.
	Behind []Behind
	// Partial lets an answer leave out parts that cannot be asked.
	Partial bool
	// Continued says that earlier pages exist whose events are not known here.
	Continued bool
	// Start is what Scan.After was on the first page: with from=afterId the place of that event,
	// else nil.
	Start *eventlog.Point
}

// Behind is a part of the fleet that has not come as far as the others.
type Behind struct {
	Part string          // a store's id, or a sidecar's name where only its spool is meant
	At   *eventlog.Point // nil: from the start of the replay
}

// FleetStream is an answer under way, for one goroutine.
type FleetStream interface {
	// Next returns the next event: its place, and its JSON text, which is valid until the next
	// call. io.EOF is the whole end; any other error says that the answer cannot be completed.
	Next() (eventlog.Point, []byte, error)
	// Ready says that Next returns without waiting for a part.
	Ready() bool
	// Missing names the parts that were left out, for people: "node-3 (10.0.0.3:8083)". It is final
	// once Next has returned an error.
	Missing() []string
	// Behind lists the parts that have not come as far as the last event that Next has returned, or
	// as Scan.After where that is further in the direction of the scan. A cursor holds them too.
	Behind() []Behind
	// Parts counts the events that each part has given to the answer so far, always in the same
	// order. The slice is the caller's.
	Parts() []PartCount
	// Close ends the stream and waits for its goroutines.
	Close()
}

// PartCount is how much of an answer came from one part of the fleet.
type PartCount struct {
	Part   string `json:"part"` // as people know it: "store of node-3", "spool of node-3"
	Events int64  `json:"events"`
}

// Member is one sidecar of the fleet, as GET /peers lists it.
type Member struct {
	NodeID    string `json:"node_id"` // "" while it is not known
	Address   string `json:"address"`
	StoreID   string `json:"store_id"` // "" while it is not known
	Self      bool   `json:"self"`     // the one that was asked
	Reachable bool   `json:"reachable"`
	Reason    string `json:"reason,omitempty"` // why it is not
}

// Peer is a sidecar's identity, as GET /peer tells it to the others.
type Peer struct {
	NodeID   string `json:"node_id"`
	Instance string `json:"instance"` // of one life of its process
	StoreID  string `json:"store_id"` // "" while its store was never reached
	// Shared says that the store is not the sidecar's own, so that there is a spool in front of it.
	Shared  bool   `json:"shared"`
	Version string `json:"version"`
}

// Parts are the parts of this sidecar, its store and its spool.
type Parts struct {
	// Log is the store without the spool.
	Log Source
	// Spool freezes a topic of the spool; nil: there is none.
	Spool func(ctx context.Context, topic string) (eventlog.Snapshot, error)
	// Waiting finds an event in the spool by its id, the store away or not; eventlog.ErrNotFound if
	// it is not there. nil: there is none.
	Waiting func(ctx context.Context, topic, id string) (*eventlog.Record, error)
}

// Freeze freezes a topic of the spool; nil: there is no spool, or it has nothing of the topic.
func (p Parts) Freeze(ctx context.Context, topic string) (eventlog.Snapshot, error) {
	if p.Spool == nil {
		return nil, nil
	}
	frozen, err := p.Spool(ctx, topic)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	first, err := frozen.Scan(ctx, topic, eventlog.ScanQuery{}, eventlog.Bounds{Events: 1})
	if len(first) == 0 {
		frozen.Close()
		return nil, err
	}
	return frozen, nil
}

// The parts of a sidecar; AnyPart is its store, else its spool.
const (
	AnyPart   = ""
	PartLog   = "log"
	PartSpool = "spool"
)

// parallelLookups bounds the look-ups at once of one call of Times.
const parallelLookups = 8

// Times tells for each id at which ts a part holds it: nil where it does not, or where its event
// has another key than the one that is asked for. Anywhere is the store and the spool in one.
func (p Parts) Times(ctx context.Context, anywhere Source, part, topic string, key *string, ids []string) ([]*int64, error) {
	find := anywhere.Lookup
	switch part {
	case PartLog:
		find = p.Log.Lookup
	case PartSpool:
		if find = p.Waiting; find == nil {
			return make([]*int64, len(ids)), nil
		}
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(parallelLookups)
	out := make([]*int64, len(ids))
	for i, id := range ids {
		work.Go(func() error {
			rec, err := find(ctx, topic, id)
			switch {
			case errors.Is(err, eventlog.ErrNotFound):
			case err != nil:
				return err
			case key == nil || rec.Key == *key:
				out[i] = &rec.TS
			}
			return nil
		})
	}
	return out, work.Wait()
}

// The headers that name parts of the fleet.
const (
	HeaderStoreID = "Sluice-Store-Id"
	HeaderNodeID  = "Sluice-Node-Id"
	HeaderEmpty   = "Sluice-Empty"   // a spool has no event of the topic
	HeaderMissing = "Sluice-Missing" // also a trailer
	HeaderParts   = "Sluice-Parts"   // a trailer
)

// MaxPeerIDs is the most ids of one POST /peer/ids.
const MaxPeerIDs = 1000

// PeerIDs is the body of POST /peer/ids, PeerTimes its answer: for each id the ts at which it is
// held, or null.
type (
	PeerIDs struct {
		IDs []string `json:"ids"`
	}
	PeerTimes struct {
		TS []*int64 `json:"ts"`
	}
)
