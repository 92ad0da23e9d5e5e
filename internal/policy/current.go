package policy

import "sync/atomic"

// Current holds the snapshot in force. It is safe for concurrent use.
type Current struct {
	now atomic.Pointer[watchedSnapshot]
}

// watchedSnapshot is a snapshot in force; replaced is closed when another one is.
type watchedSnapshot struct {
	snapshot *Snapshot
	replaced chan struct{}
}

// NewCurrent puts a first snapshot in force.
func NewCurrent(s *Snapshot) *Current {
	c := &Current{}
	c.now.Store(&watchedSnapshot{snapshot: s, replaced: make(chan struct{})})
	return c
}

// Load returns the snapshot in force. A publish loads it once and uses it to its end.
func (c *Current) Load() *Snapshot { return c.now.Load().snapshot }

// Watch returns the snapshot in force and a channel that is closed once another one is. A caller
// that waits for it misses no change, though it may see only the last of several.
func (c *Current) Watch() (*Snapshot, <-chan struct{}) {
	r := c.now.Load()
	return r.snapshot, r.replaced
}

// Swap puts another snapshot in force.
func (c *Current) Swap(s *Snapshot) {
	close(c.now.Swap(&watchedSnapshot{snapshot: s, replaced: make(chan struct{})}).replaced)
}
