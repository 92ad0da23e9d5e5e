package xds

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// State is the state of the connection to the server.
type State struct {
	Connected bool
	Since     time.Time // when Connected changed
	Err       error     // why there is no connection; nil: there is one, or the client is connecting
	Server    string    // the identifier of the server that answered last
}

// Away reports whether there is no connection, and the client has failed to make one.
func (s State) Away() bool { return !s.Connected && s.Err != nil }

// errEnded is the Err of a client whose Run has returned.
var errEnded = errors.New("the client has ended")

// watched is a state that goroutines can wait for.
type watched struct {
	connected atomic.Bool // as in now, for callers that read it often

	mu      sync.Mutex
	now     State
	changed chan struct{} // closed when now changes
}

func (w *watched) watch() (State, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now, w.changed
}

// answered notes a response of the server with that identifier.
func (w *watched) answered(server string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now.Server = server
}

func (w *watched) set(connected bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if connected != w.now.Connected || w.now.Since.IsZero() {
		w.now.Since = time.Now()
	}
	w.now.Connected, w.now.Err = connected, err
	w.connected.Store(connected)
	if w.changed != nil {
		close(w.changed)
	}
	w.changed = make(chan struct{})
}
