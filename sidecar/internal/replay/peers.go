package replay

import (
	"encoding/json"
	"errors"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// amongPeers lets only those through that may ask what sidecars ask each other.
func (h *handler) amongPeers(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h.PeerTokens.MayAsk(h.Access, r); err != nil {
			h.refuse(w, r, err)
			return
		}
		next(w, r)
	}
}

// refuse answers with an error. One of MayAsk needs more than others do.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, &wire.Error{Code: wire.Unauthorized}) {
		h.PeerTokens.Refuse(w, r, err, h.Logger)
		return
	}
	httpapi.WriteError(w, r, err, h.Logger)
}

// peer says who this sidecar is.
func (h *handler) peer(w http.ResponseWriter, _ *http.Request) { writeJSON(w, h.Self()) }

// peers lists the fleet as it is now.
func (h *handler) peers(w http.ResponseWriter, r *http.Request) {
	if h.Access != nil {
		if err := h.PeerTokens.MayAsk(h.Access, r); err != nil {
			h.refuse(w, r, err)
			return
		}
	}
	self := h.Self()
	members := []Member{{NodeID: self.NodeID, StoreID: self.StoreID, Self: true, Reachable: true}}
	if h.Fleet != nil {
		members = h.Fleet.Members(r.Context())
	}
	writeJSON(w, struct {
		Peers []Member `json:"peers"`
	}{members})
}

// Bounds of POST /peer/ids.
const (
	maxPeerIDsBytes = 4 << 20 // of its body: MaxPeerIDs ids, each character escaped
	parallelLookups = 8
)

// peerIDs says at which ts the store, else the spool, holds each id; null where
// neither does, or where the event has another key than the one asked for.
func (h *handler) peerIDs(w http.ResponseWriter, r *http.Request) {
	topic, key, ids, err := h.parsePeerIDs(w, r)
	if err != nil {
		httpapi.WriteError(w, r, err, h.Logger)
		return
	}
	answer := PeerTimes{TS: make([]*int64, len(ids))}
	work, ctx := errgroup.WithContext(r.Context())
	work.SetLimit(parallelLookups)
	for i, id := range ids {
		work.Go(func() error {
			rec, err := h.Store.Lookup(ctx, topic, id)
			switch {
			case errors.Is(err, eventlog.ErrNotFound):
				return nil
			case err != nil:
				return sourceError(err)
			case key == nil || rec.Key == *key:
				answer.TS[i] = &rec.TS
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		httpapi.WriteError(w, r, err, h.Logger)
		return
	}
	writeJSON(w, answer)
}

func (h *handler) parsePeerIDs(w http.ResponseWriter, r *http.Request) (topic string, key *string, ids []string, err error) {
	p, err := httpapi.ParseParams(r.URL.RawQuery)
	if err != nil {
		return "", nil, nil, err
	}
	if topic, err = topicParam(p); err != nil {
		return "", nil, nil, err
	}
	if topic == "" {
		return "", nil, nil, httpapi.BadParam("topic", "it is missing; name the topic of the ids")
	}
	if key, err = keyParam(p); err != nil {
		return "", nil, nil, err
	}
	if err := h.mayRead(r, topic); err != nil {
		return "", nil, nil, err
	}
	var body PeerIDs
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxPeerIDsBytes)).Decode(&body); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return "", nil, nil, wire.Errorf(wire.PayloadTooLarge, "the body has more than the %d bytes that are read", maxPeerIDsBytes)
		}
		return "", nil, nil, wire.Errorf(wire.BadJSON, `the body must be {"ids":["…"]}: %v`, err)
	}
	if len(body.IDs) > MaxPeerIDs {
		return "", nil, nil, wire.Errorf(wire.BadRequest, "ids: there are %d; at most %d are allowed", len(body.IDs), MaxPeerIDs)
	}
	return topic, key, body.IDs, nil
}

// writeJSON answers with v. An error of writing means that the client has gone.
func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(v)
}
