package replay

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/receive"
)

// amongPeers admits only clients that may use the routes between sidecars.
func (h *handler) amongPeers(next serveFunc) serveFunc {
	return func(w http.ResponseWriter, r *httpapi.Request) error {
		if err := h.Access.PeerMayAsk(r.Request); err != nil {
			return err
		}
		return next(w, r)
	}
}

// peer answers with this sidecar's identity.
func (h *handler) peer(w http.ResponseWriter, _ *httpapi.Request) error {
	writeJSON(w, h.Self())
	return nil
}

// peers lists the fleet as it is now.
func (h *handler) peers(w http.ResponseWriter, r *httpapi.Request) error {
	self := h.Self()
	members := []Member{{NodeID: self.NodeID, StoreID: self.StoreID, Self: true, Reachable: true}}
	if h.Fleet != nil {
		members = h.Fleet.Members(r.Context())
	}
	writeJSON(w, peersBody{members})
	return nil
}

type peersBody struct {
	Peers []Member `json:"peers"`
}

// maxPeerIDsBytes bounds the body of POST /peer/ids: MaxPeerIDs ids, each character escaped.
const maxPeerIDsBytes = 4 << 20

// peerIDs returns for each id the ts at which the named part, or without one the store, else the
// spool, holds it; null if it does not, or if the event has another key than the requested one.
func (h *handler) peerIDs(w http.ResponseWriter, r *httpapi.Request) error {
	times, err := h.timesOf(w, r)
	if err == nil {
		writeJSON(w, PeerTimes{TS: times})
	}
	return err
}

func (h *handler) timesOf(w http.ResponseWriter, r *httpapi.Request) ([]*int64, error) {
	topic, part, key := r.Text("topic"), cmp.Or(r.Text("part"), AnyPart), keyOf(r)
	if topic == "" {
		return nil, httpapi.BadParam("topic", "it is missing; name the topic of the ids")
	}
	if err := h.mayRead(r, topic); err != nil {
		return nil, err
	}
	m := receive.Message{Budget: h.share(r.Request), AtMost: maxPeerIDsBytes}
	defer m.Free()
	err := m.ReadAll(http.MaxBytesReader(w, r.Body, maxPeerIDsBytes))
	if full, is := errors.AsType[*receive.NoMemory](err); is {
		return nil, full.Refusal
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, wire.Errorf(wire.PayloadTooLarge, "the body has more than the %d bytes that are read", maxPeerIDsBytes)
	}
	if err != nil {
		return nil, wire.Errorf(wire.BadRequest, "the body cannot be read to its end: %v", err)
	}
	body, bad := httpapi.ReadObject[PeerIDs](m.B)
	if bad != nil {
		return nil, bad
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
