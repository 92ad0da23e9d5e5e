package control

import (
	"sync"
	"sync/atomic"
)

// Standings of a topic.
const (
	asked     int32 = iota // nothing was heard of its policy yet
	known                  // its policy is known, or that it has none of its own
	abandoned              // nothing was heard for so long that nobody waits any more
	gone                   // it is out of the table, or about to be
)

// topic is a topic in use here.
type topic struct {
	name string
	// standing changes under Control.mu, except for those who give up waiting.
	standing atomic.Int32
	// used is set by whoever uses the topic, and cleared by each sweep.
	used atomic.Bool
	// answered is closed once the standing is known for the first time.
	answered chan struct{}
	// idle counts the sweeps since the topic was used; of the sweep alone.
	idle int
}

func newTopic(name string, standing int32) *topic {
	t := &topic{name: name, answered: make(chan struct{})}
	t.standing.Store(standing)
	t.used.Store(true)
	return t
}

// use marks the topic as used, and returns its standing after that: one that
// is not gone then stays for [forgetAfter] at least.
func (t *topic) use() int32 {
	if !t.used.Load() {
		t.used.Store(true)
	}
	return t.standing.Load()
}

// table finds topics by name. Lookups take no lock and may go on during a
// change; whoever changes it does so alone.
type table struct {
	topics sync.Map // name → *topic
	count  atomic.Int64
}

func (t *table) find(name string) *topic {
	tp, _ := t.topics.Load(name)
	found, _ := tp.(*topic)
	return found
}

// add puts in a topic that is not there.
func (t *table) add(tp *topic) {
	t.topics.Store(tp.name, tp)
	t.count.Add(1)
}

// remove takes out a topic that is there.
func (t *table) remove(tp *topic) {
	t.topics.Delete(tp.name)
	t.count.Add(-1)
}

// all yields every topic; those that it yields may be removed meanwhile.
func (t *table) all(yield func(*topic) bool) {
	for _, tp := range t.topics.Range {
		if !yield(tp.(*topic)) {
			return
		}
	}
}
