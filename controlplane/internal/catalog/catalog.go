// Package catalog keeps the policies of a fleet, their history, and changes them: each change
// validates the whole set and is committed whole or not at all. A change passes these files: put.go
// and apply.go make a request of the current policies, commit.go makes a commit and the state that
// follows, and starts over if another commit came first; author.go checks the author's rights;
// state.go has the policies as of one revision; load.go follows the commits of others, and
// restored.go detects that the store's history was replaced; history.go has the earlier versions.
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

// Config has the dependencies of a catalog.
type Config struct {
	Store  store.Store
	Logger *slog.Logger     // nil: slog.Default
	Now    func() time.Time // nil: time.Now
}

// Catalog is the policies of one store, which other catalogs may change, too. It is safe for
// concurrent use.
type Catalog struct {
	cfg Config
	// wait pauses between two attempts.
	wait func(context.Context, time.Duration) bool

	// turns has the goroutine that changes the fields below.
	turns   *Turns
	current atomic.Pointer[watchedState]
	read    atomic.Pointer[time.Time] // when the last successful look at the store began

	// history has the position of every change in the store; it is never behind the state.
	mu      sync.RWMutex
	history history
}

// watchedState is a state in force; replaced is closed when another one is.
type watchedState struct {
	state    *State
	replaced chan struct{}
}

// Open reads all commits of a store. The error wraps store.ErrUnavailable if another attempt may
// succeed.
func Open(ctx context.Context, cfg Config) (*Catalog, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Catalog{cfg: cfg, wait: pause.For, turns: NewTurns(), history: newHistory()}
	c.current.Store(&watchedState{state: emptyState(), replaced: make(chan struct{})})
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// State returns the policies in force.
func (c *Catalog) State() *State { return c.current.Load().state }

// Watch returns the policies in force and a channel that is closed once others are. A caller that
// waits for it misses no change, though it may see only the last of several.
func (c *Catalog) Watch() (*State, <-chan struct{}) {
	r := c.current.Load()
	return r.state, r.replaced
}

// Unread returns how long ago the policies in force were compared with the store: others may have
// changed them since. Run compares every two seconds.
func (c *Catalog) Unread() time.Duration { return time.Since(*c.read.Load()) }

// put puts a state in force. The noted commits led to it. The caller has the turn.
func (c *Catalog) put(next *State, notes ...note) {
	c.mu.Lock()
	c.history.add(notes)
	c.mu.Unlock()
	close(c.current.Swap(&watchedState{state: next, replaced: make(chan struct{})}).replaced)
}
