package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/secrets"
)

// status is the body of GET /v1/status. All programs have the same members, so that one monitor can
// read all of them; a sidecar's own members are empty here.
type status struct {
	Version  string      `json:"version"`
	NodeID   string      `json:"node_id"` // the control plane's name
	Store    storeStatus `json:"store"`
	Series   int64       `json:"series"`   // of the revision
	Revision int64       `json:"revision"` // of the policies in force
	Policies []inForce   `json:"policies"` // by name
	// Connections are the sidecars connected to any control plane of the store.
	Connections   int    `json:"connections"`
	Queues        amount `json:"queues"`
	Subscriptions int    `json:"subscriptions"`
	Spool         amount `json:"spool"`
	Peers         []peer `json:"peers"` // the replay APIs that sidecars receive
}

type storeStatus struct {
	URL   string `json:"url"`
	State string `json:"state"` // ok or away
	Since int64  `json:"since"` // ms, when the state began
	Error string `json:"error,omitempty"`
}

// inForce is a policy that sidecars receive.
type inForce struct {
	Name    string `json:"name"`
	Version int64  `json:"version"`
	Source  string `json:"source"` // the author of its last change
}

type amount struct {
	Events int64 `json:"events"`
	Bytes  int64 `json:"bytes"`
}

type peer struct {
	NodeID  string `json:"node_id"`
	StoreID string `json:"store_id"`
	Address string `json:"address"`
	Gone    bool   `json:"gone,omitempty"` // it has left, or cannot be reached
}

// pingTimeout bounds the check whether the store can be reached.
const pingTimeout = time.Second

func (c *ControlPlane) status() any {
	state := c.catalog.State()
	s := status{
		Version: c.cfg.Version, NodeID: c.cfg.Name, Store: storeStatus{URL: c.cfg.Store, State: "ok"},
		Series: state.Series, Revision: state.Revision, Policies: make([]inForce, len(state.Entries)),
		Connections: c.registry.Known(), Peers: []peer{}, // [] rather than null
	}
	for i, e := range state.Entries {
		s.Policies[i] = inForce{Name: e.Policy.Name, Version: e.Version, Source: e.UpdatedBy}
	}
	for _, n := range c.registry.Peers() {
		s.Peers = append(s.Peers, peer{NodeID: n.ID, StoreID: n.StoreID, Address: n.Address, Gone: n.Gone})
	}
	if c.shared != nil {
		s.Store.URL = secrets.Without(c.cfg.Store)
	}
	since, err := c.ping()
	if s.Store.Since = since.UnixMilli(); err != nil {
		s.Store.State, s.Store.Error = "away", err.Error()
	}
	return s
}

// storeState is whether the store could be used when it was last asked, and since when.
type storeState struct {
	mu    sync.Mutex
	err   error
	since time.Time
}

// ping asks the store whether it can be used, and says since when the answer is the same.
func (c *ControlPlane) ping() (since time.Time, _ error) {
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	err := c.store.Ping(ctx)
	s := &c.storeState
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() || (err == nil) != (s.err == nil) {
		s.since = time.Now()
	}
	s.err = err
	return s.since, err
}

// ready returns why policies cannot be changed, or nil. Sidecars are served the policies in force
// for some time more.
func (c *ControlPlane) ready() error {
	if c.stopping.Load() {
		return errors.New("the control plane is stopping")
	}
	if !c.current() {
		return fmt.Errorf("the policy store has not been read for %v; sidecars have to connect to another control plane",
			c.catalog.Unread().Round(time.Second))
	}
	if _, err := c.ping(); err != nil {
		return fmt.Errorf("the policy store (--store) is away; policies cannot be changed (the last error: %w)", err)
	}
	return nil
}

// profiles serves this process's profiles at /debug/pprof/.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
