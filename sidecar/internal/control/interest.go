package control

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/controlplane/policypb"
)

const (
	// sweepEvery is how often it is looked at which topics were used.
	sweepEvery = time.Minute
	// forgetAfter is how long a topic stays unused before its policy is
	// forgotten, give or take sweepEvery.
	forgetAfter = 15 * time.Minute
)

// Await has the policy of a topic known before it is used: the first time it
// waits for it, for AwaitPolicy at most, while there is a connection or the first
// one is being made, and the control plane speaks.
// Where the policy stays unknown, the most specific glob holds until it comes.
// It marks the topic as used.
func (c *Control) Await(ctx context.Context, name string) {
	t := c.topics.find(name)
	if t != nil {
		if s := t.use(); s == known || s == abandoned || s == asked && (c.client.Away() || c.silent.Load()) {
			return
		}
	} else if c.topics.count.Load() >= MaxTopics {
		c.tellFull()
		return
	}
	if t = c.want(name); t != nil {
		c.wait(ctx, t)
	}
}

// Use is [Control.Await] without waiting.
func (c *Control) Use(name string) {
	t := c.topics.find(name)
	switch {
	case t != nil && t.use() != gone:
	case t == nil && c.topics.count.Load() >= MaxTopics:
		c.tellFull()
	default:
		c.want(name)
	}
}

// Known tells whether the topic's own policy is in force, or known to be absent.
// For a topic that is not in use it is false: [Control.Use] asks for it.
func (c *Control) Known(name string) bool {
	t := c.topics.find(name)
	return t != nil && t.standing.Load() == known
}

// want returns the topic, asking for its policy if nobody has; nil: there is no
// room for it, or no policy can have that name.
func (c *Control) want(name string) *topic {
	if !topicName(name) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.topics.find(name); t != nil { // under the lock none is gone
		t.use()
		return t
	}
	if c.topics.count.Load() >= MaxTopics {
		return nil
	}
	if c.client.Subscribe(policypb.TopicPolicyType, name) != nil {
		return nil // never: the name is one, and there is room for it
	}
	t := newTopic(name, asked)
	c.topics.add(t)
	return t
}

// wait waits for a topic's policy while that may come.
func (c *Control) wait(ctx context.Context, t *topic) {
	enough := time.NewTimer(AwaitPolicy)
	defer enough.Stop()
	for {
		state, changed := c.client.Watch()
		if state.Away() || c.silent.Load() {
			return
		}
		select {
		case <-t.answered:
			return
		case <-changed:
		case <-ctx.Done():
			return
		case <-enough.C:
			t.standing.CompareAndSwap(asked, abandoned)
			c.silent.Store(true)
			return
		}
	}
}

// tellFull logs, once until there is room again, that there is none.
func (c *Control) tellFull() {
	if !c.full.Load() && c.full.CompareAndSwap(false, true) {
		c.cfg.Logger.Warn("too many topics in use for policies of their own; globs hold for further ones", "topics", MaxTopics)
	}
}

// sweep forgets, again and again, the topics that are not used any more. While
// there is no connection it forgets none: their policies could not be had back.
func (c *Control) sweep(ctx context.Context, connected func() bool) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if connected() {
				c.forgetIdle()
			}
		}
	}
}

// forgetIdle forgets the topics that were not used in as many sweeps as make
// up forgetAfter.
func (c *Control) forgetIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held[policypb.TopicPolicyType]
	var names []string
	acted := false
	for t := range c.topics.all {
		if t.used.Swap(false) {
			t.idle = 0
			continue
		}
		if t.idle++; t.idle <= int(forgetAfter/sweepEvery) || !t.bury() {
			continue
		}
		c.topics.remove(t)
		names = append(names, t.name)
		if e := held[t.name]; e != nil {
			acted = acted || e.effective != nil
			delete(held, t.name)
			c.acting.change(t.name, nil)
		}
	}
	if len(names) == 0 {
		return
	}
	c.full.Store(false)
	c.client.Unsubscribe(policypb.TopicPolicyType, names...)
	if acted && c.have {
		c.current.Swap(c.acting.snapshot(c.held))
	}
	c.touch()
}

// bury makes the topic gone, unless it is used just now: whoever uses it marks
// it first and looks at its standing then, which is the other way round here,
// so that one of the two sees the other.
func (t *topic) bury() bool {
	for {
		was := t.standing.Load()
		if !t.standing.CompareAndSwap(was, gone) {
			continue // somebody gave up waiting
		}
		if t.used.Load() {
			t.standing.Store(was)
			return false
		}
		return true
	}
}
