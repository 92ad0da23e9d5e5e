package xds

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// State is how a client stands with its server.
type State struct {
	Connected bool
	Since     time.Time // when it became so
	Err       error     // why there is no connection; nil: there is, or one is on its way
}

// Away tells whether there is no connection, and none is on its way that can be
// expected to come about.
func (s State) Away() bool { return !s.Connected && s.Err != nil }

// errEnded is why a client has no connection that is no longer run.
var errEnded = errors.New("the client has ended")

// watched is a state that can be waited for.
type watched struct {
	connected atomic.Bool // as in now, for those who ask often

	mu      sync.Mutex
	now     State
	changed chan struct{} // closed when now is another
}

func (w *watched) get() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *watched) watch() (State, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now, w.changed
}

func (w *watched) set(s State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replace(s)
}

// lost notes why there is no connection; for how long, it goes on counting.
func (w *watched) lost(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := State{Since: w.now.Since, Err: err}
	if w.now.Connected {
		s.Since = time.Now()
	}
	w.replace(s)
}

func (w *watched) replace(s State) {
	w.now = s
	w.connected.Store(s.Connected)
	if w.changed != nil {
		close(w.changed)
	}
	w.changed = make(chan struct{})
}
