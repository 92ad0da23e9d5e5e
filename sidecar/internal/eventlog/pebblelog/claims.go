package pebblelog

import (
	"context"
	"sync"
)

// claims are the ids of a topic on which an append is deciding. Only the holder of an id looks it
// up and stores it. So of concurrent appends of one id, to any partitions, one stores it and the
// others find it stored.
type claims struct {
	mu sync.Mutex
	// held has for each claimed id the channel that its append closes when it releases the claim.
	held map[string]chan struct{}
}

// acquire claims all of the ids at once, or none while another append holds any of them. It waits until then, or
// returns nil. Waiting appends hold nothing, so there is no deadlock.
func (c *claims) acquire(ctx context.Context, ids []string, wait bool) (release func(), err error) {
	if len(ids) == 0 {
		return func() {}, nil
	}
	for {
		other := c.try(ids)
		if other == nil {
			return func() { c.release(ids) }, nil
		}
		if !wait {
			return nil, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try claims the ids, or returns the channel of an append that holds one of them.
func (c *claims) try(ids []string) (other chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if other := c.held[id]; other != nil {
			return other
		}
	}
	done := make(chan struct{})
	for _, id := range ids {
		c.held[id] = done
	}
	return nil
}

func (c *claims) release(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.held[ids[0]])
	for _, id := range ids {
		delete(c.held, id)
	}
}
