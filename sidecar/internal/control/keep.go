package control

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/sluice-bus/sluice/controlplane/policypb"
	"github.com/sluice-bus/sluice/internal/pause"
)

// fileName is the cache's, in Config.Dir.
const fileName = "control-plane.cache"

const (
	// saveAfter is how long a change waits for others before all are saved.
	saveAfter = 250 * time.Millisecond
	// saveShare is the part of the time, 1/saveShare, that saving may take.
	saveShare = 20
	// retrySaveAfter is the wait after a failure.
	retrySaveAfter = 5 * time.Second
)

// restore reads the cache into what is held. One that is missing or damaged
// leaves nothing.
func (c *Control) restore() {
	if c.cfg.Dir == "" {
		return
	}
	path := filepath.Join(c.cfg.Dir, fileName)
	kept, err := readCache(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		c.cfg.Logger.Error("what was kept of the control plane is ignored: the policies are unknown until it answers", "file", path, "error", err)
		return
	}
	for typeURL, entries := range kept.held {
		for name, e := range entries {
			if typeURL == policypb.TopicPolicyType {
				if c.topics.count.Load() >= MaxTopics {
					continue
				}
				t := newTopic(name, known)
				close(t.answered)
				c.topics.add(t)
			}
			c.held[typeURL][name] = e
		}
	}
	c.have, c.previous = true, kept.instance
}

// touch notes that there is something to save. c.mu is held.
func (c *Control) touch() {
	c.unsaved = true
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// keep saves what changes until ctx ends.
func (c *Control) keep(ctx context.Context) error {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		}
		wait := saveAfter
		for {
			if !pause.For(ctx, wait) {
				return nil // Run saves
			}
			began := time.Now()
			err := c.save()
			if err == nil {
				failing = false
				if !pause.For(ctx, saveShare*time.Since(began)-saveAfter) {
					return nil
				}
				break
			}
			if !failing {
				failing = true
				c.cfg.Logger.Error("what the control plane said cannot be kept for the next start; trying again, and silent until it can", "error", err)
			}
			wait = retrySaveAfter
		}
	}
}

// saveNow saves what is not saved, as the last thing.
func (c *Control) saveNow() {
	if err := c.save(); err != nil {
		c.cfg.Logger.Error("what the control plane said is not kept for the next start", "error", err)
	}
}

// save writes the cache if it is not what is held. There is nothing to write
// before all of it is known: a part would be taken for the whole.
func (c *Control) save() error {
	if c.cfg.Dir == "" {
		return nil
	}
	c.mu.Lock()
	if !c.have || !c.unsaved {
		c.mu.Unlock()
		return nil
	}
	content := contentOf(c.cfg.Instance, c.held)
	c.unsaved = false
	c.mu.Unlock()
	err := writeCache(filepath.Join(c.cfg.Dir, fileName), content)
	if err != nil {
		c.mu.Lock()
		c.unsaved = true
		c.mu.Unlock()
	}
	return err
}
