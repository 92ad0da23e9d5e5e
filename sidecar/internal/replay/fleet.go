package replay

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Fleet answers scope=fleet: it treats the stores and spools of all sidecars as one history. Its
// methods are safe for concurrent use.
type Fleet interface {
	// Open asks every part of the fleet for its events that q selects, and returns once each has
	// begun to answer or is known to be missing. If parts are missing, it returns a *wire.Error
	// with partial_fleet that names them, unless q allows a partial answer.
	Open(ctx context.Context, q FleetQuery) (FleetStream, error)
	// Lookup finds the (ts, id) of an event by its id: the lowest, if several stores have it;
	// eventlog.ErrNotFound if none has. If a part could not be asked, it returns a *wire.Error with
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
	// Limit is how many events the caller will read; 0: all.
	Limit int
	// Behind are the parts that an earlier page could not ask: each continues from where it was
	// last asked, not from Scan.After.
	Behind []Behind
	// Partial lets an answer leave out parts that cannot be asked.
	Partial bool
	// Continued says that earlier pages exist whose events are not known here.
	Continued bool
	// Share has the place and the memory of the answer; nil: no bounds.
	Share *budget.Share
	// Start is the Scan.After of the first page: with from=afterId the (ts, id) of that event, else
	// nil.
	Start *eventlog.Point
}

// Behind is a part of the fleet that has not come as far as the others.
type Behind struct {
	Part string          // a store's id, or a sidecar's name for its spool
	At   *eventlog.Point // nil: from the start of the replay
}

// FleetStream is an answer under way, for one goroutine.
type FleetStream interface {
	// Next returns the next event: its (ts, id), and its JSON text, which is valid until the next
	// call. io.EOF is the proper end. After any other error the answer cannot be completed.
	Next() (eventlog.Point, []byte, error)
	// Ready reports whether Next returns without waiting for a part.
	Ready() bool
	// Missing names the parts that were left out, for people: "node-3 (10.0.0.3:8083)". It is final
	// once Next has returned an error.
	Missing() []string
	// Behind lists the parts that have not come as far as the last event of Next, or as Scan.After
	// if that is further in the direction of the scan. Cursors contain them.
	Behind() []Behind
	// Parts counts the events that each part has given to the answer so far, always in the same
	// order. The caller owns the slice.
	Parts() []PartCount
	// Close ends the stream and waits for its goroutines.
	Close()
}

// PartCount is how much of an answer came from one part of the fleet.
type PartCount struct {
	Part   string `json:"part"` // its name for people: "store of node-3", "spool of node-3"
	Events int64  `json:"events"`
}

// Member is one sidecar of the fleet, as GET /peers lists it.
type Member struct {
	NodeID    string `json:"node_id"` // "" while it is not known
	Address   string `json:"address"`
	StoreID   string `json:"store_id"` // "" while it is not known
	Self      bool   `json:"self"`     // the sidecar that was asked
	Reachable bool   `json:"reachable"`
	Reason    string `json:"reason,omitempty"` // why it does not answer
}

// Peer is a sidecar's identity in GET /peer, for other sidecars.
type Peer struct {
	NodeID   string `json:"node_id"`
	Instance string `json:"instance"` // of one life of its process
	StoreID  string `json:"store_id"` // "" while its store was never reached
	FolderID string `json:"folder_id"`
	// Shared says that other sidecars can use the store too, so that there is a spool in front of
	// it.
	Shared  bool   `json:"shared"`
	Version string `json:"version"`
}

// Parts are the parts of this sidecar, its store and its spool.
type Parts struct {
	// Log is the store without the spool.
	Log Source
	// Spool freezes a topic of the spool; nil: there is none.
	Spool func(ctx context.Context, topic string) (eventlog.Snapshot, error)
	// Waiting finds an event in the spool by its id, even if the store is away;
	// eventlog.ErrNotFound if it is not there. nil: there is no spool.
	Waiting func(ctx context.Context, topic, id string) (*eventlog.Record, error)
}

// Freeze freezes a topic of the spool; nil: there is no spool, or it has no event of the topic.
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

// The parts of a sidecar. AnyPart is its store, or for an id that the store does not have its
// spool.
const (
	AnyPart   = ""
	PartLog   = "log"
	PartSpool = "spool"
)

// parallelLookups bounds the look-ups at once of one call of Times.
const parallelLookups = 8

// Times returns for each id the ts at which a part holds it: nil if the part does not hold it, or
// if its event has another key than the requested one. Anywhere is the store and the spool in one.
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
