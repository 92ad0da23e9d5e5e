package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
)

// fileName is the name of the cache in Config.Dir, and copyName that of its copy.
const (
	fileName = "control-plane.cache"
	copyName = fileName + ".copy"
)

const (
	// saveAfter is how long a change waits for others before all are saved.
	saveAfter = 250 * time.Millisecond
	// saveShare bounds the part of the time that saving takes, to 1/saveShare: acks wait for it.
	saveShare = 4
	// retrySaveAfter is the wait after a failure.
	retrySaveAfter = 5 * time.Second
)

// restore reads the newest copy of the cache that is not damaged.
func (c *Control) restore() {
	if c.cfg.Dir == "" {
		return
	}
	var newest *kept
	copies := 0
	damaged := map[string]error{}
	for _, name := range []string{fileName, copyName} {
		path := filepath.Join(c.cfg.Dir, name)
		kept, err := readCache(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			damaged[path] = err
		default:
			copies++
			if newest == nil || kept.writes > newest.writes {
				newest = kept
			}
		}
	}
	for path, err := range damaged {
		if newest != nil {
			c.cfg.Logger.Warn("a copy of the cache of the control plane's policies is damaged: the other one is used", "file", path, "error", err)
			continue
		}
		c.cfg.Logger.Error("the cache of the control plane's policies is ignored: the policies are unknown until it answers",
			"file", path, "error", err)
	}
	if newest == nil {
		return
	}
	if copies < 2 {
		c.touch() // so that there are two
	}
	c.accepted, c.writes = newest.accepted, newest.writes
	c.have, c.peersKnown, c.previous, c.revision = true, true, newest.instance, newest.revision
}

// touch records that what was accepted has changed. c.mu is held.
func (c *Control) touch() {
	c.unsaved = true
	c.changed.Set()
}

// keep saves changes until ctx ends.
func (c *Control) keep(ctx context.Context) error {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		}
		for wait := saveAfter; ; wait = retrySaveAfter {
			if !pause.For(ctx, wait) {
				return nil // Run saves
			}
			err := c.save(ctx)
			if err == nil {
				failing = false
				break
			}
			if !failing && ctx.Err() == nil {
				failing = true
				c.cfg.Logger.Error("policies of the control plane are in force and cannot be kept for the next start; trying again "+
					"without further log lines", "error", err)
			}
		}
	}
}

// keepNow saves accepted updates before they are acknowledged. An update that cannot be saved stays
// in force, since a lowered limit has to act on a full disk, too. The control plane gets the error.
func (c *Control) keepNow(ctx context.Context) (bool, error) {
	c.mu.Lock()
	have := c.have && c.peersKnown
	c.mu.Unlock()
	if !have && c.cfg.Dir != "" {
		return false, nil
	}
	if err := c.save(ctx); err != nil {
		return false, fmt.Errorf("in force, and not kept for the next start: %w", err)
	}
	return true, nil
}

// saveNow saves the last changes.
func (c *Control) saveNow() {
	if err := c.save(context.Background()); err != nil {
		c.cfg.Logger.Error("policies of the control plane are not kept for the next start", "error", err)
	}
}

// save writes the cache if what was accepted has changed. It writes nothing before all policies were
// accepted: the next start would treat a part as all.
func (c *Control) save(ctx context.Context) error {
	if c.cfg.Dir == "" {
		return nil
	}
	c.saving.Lock()
	defer c.saving.Unlock()
	if !pause.For(ctx, time.Until(c.saveAt)) {
		return ctx.Err()
	}
	c.mu.Lock()
	if !c.have || !c.peersKnown || !c.unsaved {
		c.mu.Unlock()
		return nil
	}
	content := contentOf(c.instance, c.revision, c.accepted)
	c.unsaved = false
	c.mu.Unlock()
	began := time.Now()
	c.writes++
	content.Nonce = strconv.FormatUint(c.writes, 10)
	err := writeCache(filepath.Join(c.cfg.Dir, fileName), content)
	if err == nil {
		err = writeCache(filepath.Join(c.cfg.Dir, copyName), content)
	}
	c.saveAt = time.Now().Add((saveShare - 1) * time.Since(began))
	if err != nil {
		c.failing = true
		c.mu.Lock()
		c.touch()
		c.mu.Unlock()
		return err
	}
	if c.failing {
		c.failing = false
		c.client.Reopen("the updates that could not be kept are kept by now")
	}
	return nil
}
