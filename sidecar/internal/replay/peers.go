package replay

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// amongPeers admits only clients that may use the routes between sidecars.
func (h *handler) amongPeers(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h.Access.PeerMayAsk(r); err != nil {
			h.refuse(w, r, err)
			return
		}
		next(w, r)
	}
}

// refuse answers a request that parseExport or PeerMayAsk has refused.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, &wire.Error{Code: wire.Unauthorized}) {
		h.Access.Challenge(w, r, err)
		return
	}
	httpapi.WriteError(w, r, err, h.Logger)
}

// peer answers with this sidecar's identity.
func (h *handler) peer(w http.ResponseWriter, _ *http.Request) { writeJSON(w, h.Self()) }

// peers lists the fleet as it is now.
func (h *handler) peers(w http.ResponseWriter, r *http.Request) {
	self := h.Self()
	members := []Member{{NodeID: self.NodeID, StoreID: self.StoreID, Self: true, Reachable: true}}
	if h.Fleet != nil {
		members = h.Fleet.Members(r.Context())
	}
	writeJSON(w, map[string][]Member{"peers": members})
}

// maxPeerIDsBytes bounds the body of POST /peer/ids: MaxPeerIDs ids, each character escaped.
const maxPeerIDsBytes = 4 << 20

// peerIDs returns for each id the ts at which the named part, or without one the store, else the
// spool, holds it; null if it does not, or if the event has another key than the requested one.
func (h *handler) peerIDs(w http.ResponseWriter, r *http.Request) {
	times, err := h.timesOf(w, r)
	if err != nil {
		httpapi.WriteError(w, r, err, h.Logger)
		return
	}
	writeJSON(w, PeerTimes{TS: times})
}

func (h *handler) timesOf(w http.ResponseWriter, r *http.Request) ([]*int64, error) {
	p, err := httpapi.ParseParams(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	topic, err := topicParam(p, "name the topic of the ids")
	if err != nil {
		return nil, err
	}
	part := AnyPart
	if p.Has("part") {
		if part, err = p.Choice("part", PartLog, PartSpool); err != nil {
			return nil, err
		}
	}
	key, err := keyParam(p)
	if err != nil {
		return nil, err
	}
	if err := h.mayRead(r, topic); err != nil {
		return nil, err
	}
	var body PeerIDs
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxPeerIDsBytes)).Decode(&body); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return nil, wire.Errorf(wire.PayloadTooLarge, "the body has more than the %d bytes that are read", maxPeerIDsBytes)
		}
		return nil, wire.Errorf(wire.BadJSON, `the body must be {"ids":["…"]}: %v`, err)
	}
	if len(body.IDs) > MaxPeerIDs {
		return nil, wire.Errorf(wire.BadRequest, "ids: there are %d; at most %d are allowed", len(body.IDs), MaxPeerIDs)
	}
	times, err := h.Parts.Times(r.Context(), h.Store, part, topic, key, body.IDs)
	return times, sourceError(err)
}

// writeJSON answers with v. An error of writing means that the client has gone.
func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(v)
}
