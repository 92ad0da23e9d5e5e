// Package catalog is the policies of a fleet: what they are now, what they
// were, and the ways to change them, each of which validates the whole set and
// commits all of a change or nothing. It must not know REST, xDS or what the
// store is.
//
// The way of a change: put.go and apply.go say what is wanted of the policies as
// they are, commit.go makes a commit of it and of the state that follows, and
// starts over where somebody else has come first; author.go says who may make it;
// state.go is the policies as of one revision; load.go follows what others commit, and restored.go notices where
// they go on from another past; history.go is what was.
package catalog

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/pause"
)

// Config is what a catalog is made from.
type Config struct {
	Store  store.Store
	Logger *slog.Logger     // nil: slog.Default
	Now    func() time.Time // nil: time.Now
}

// Catalog is the policies of one store, which other catalogs may change, too.
// Open makes one. It is safe for concurrent use.
type Catalog struct {
	cfg Config
	// wait is how it waits between two tries.
	wait func(context.Context, time.Duration) bool

	// turn is held by who adds to what follows.
	turn    pause.Mutex
	current atomic.Pointer[reign]
	read    atomic.Pointer[time.Time] // when the last look at the store began that succeeded

	// history says where in the store every change is; it is never behind the state.
	mu      sync.RWMutex
	history history
}

// reign is one state's time in force; ended is closed when it is over.
type reign struct {
	state *State
	ended chan struct{}
}

// Open reads all commits of a store. The error wraps store.ErrUnavailable where
// trying again may help.
func Open(ctx context.Context, cfg Config) (*Catalog, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Catalog{cfg: cfg, wait: pause.For, turn: pause.NewMutex(), history: newHistory()}
	c.current.Store(&reign{state: emptyState(), ended: make(chan struct{})})
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// State returns the policies in force.
func (c *Catalog) State() *State { return c.current.Load().state }

// Watch returns the policies in force and a channel that is closed once others
// are: whoever waits for it misses no change, though it may see only the last of
// several.
func (c *Catalog) Watch() (*State, <-chan struct{}) {
	r := c.current.Load()
	return r.state, r.ended
}

// Unread is for how long what is in force has not been held against the store:
// others may have changed it since. Run looks every two seconds.
func (c *Catalog) Unread() time.Duration { return time.Since(*c.read.Load()) }

// put puts a state in force that the noted commits led to. The caller has the turn.
func (c *Catalog) put(next *State, notes ...note) {
	c.mu.Lock()
	c.history.add(notes)
	c.mu.Unlock()
	close(c.current.Swap(&reign{state: next, ended: make(chan struct{})}).ended)
}
