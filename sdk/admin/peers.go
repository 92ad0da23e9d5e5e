package admin

import (
	"context"
	"net/http"
)

// Peer is one sidecar of the fleet, as another one sees it.
type Peer struct {
	NodeID    string `json:"node_id"` // "" if no one has heard of it yet
	Address   string `json:"address"` // of its replay API
	StoreID   string `json:"store_id"`
	Self      bool   `json:"self"` // the one that was asked
	Reachable bool   `json:"reachable"`
	Reason    string `json:"reason"` // why it is not
}

// Peers lists the sidecars whose history is part of the scope fleet for the sidecar of the replay API,
// which first asks each of them.
func (h *HTTP) Peers(ctx context.Context) ([]Peer, error) {
	at, err := h.replay(ctx)
	if err != nil {
		return nil, err
	}
	body, err := ask[struct{ Peers []Peer }](ctx, h, http.MethodGet, at, "/peers", nil)
	return body.Peers, err
}
