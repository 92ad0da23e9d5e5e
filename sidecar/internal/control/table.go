package control

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	// firstChains is how many chains a table begins with.
	firstChains = 64
	// chainLength is the average length of a chain at which there have to be
	// more of them: growth times as many.
	chainLength = 2
	growth      = 4
)

// Standings of a topic.
const (
	asked    int32 = iota // nothing was heard of its policy yet
	known                 // its policy is known, or that it has none of its own
	hopeless              // nothing was heard for so long that nobody waits any more
	gone                  // it is out of the table, or about to be
)

// topic is a topic in use here.
type topic struct {
	name string
	// standing changes under Control.mu, but for those who give up waiting.
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
	seed   maphash.Seed
	chains atomic.Pointer[[]chain]
	count  atomic.Int64
}

type chain = atomic.Pointer[link]

// link is immutable.
type link struct {
	topic *topic
	next  *link
}

func newTable() *table {
	t := &table{seed: maphash.MakeSeed()}
	first := make([]chain, firstChains)
	t.chains.Store(&first)
	return t
}

// chain returns the one that a name is in; there are a power of two of them.
func (t *table) chain(of []chain, name string) *chain {
	return &of[maphash.String(t.seed, name)&uint64(len(of)-1)]
}

func (t *table) find(name string) *topic {
	for l := t.chain(*t.chains.Load(), name).Load(); l != nil; l = l.next {
		if l.topic.name == name {
			return l.topic
		}
	}
	return nil
}

// add puts in a topic that is not there.
func (t *table) add(tp *topic) {
	chains := *t.chains.Load()
	if int(t.count.Add(1)) > chainLength*len(chains) {
		chains = make([]chain, growth*len(chains))
		for other := range t.all {
			c := t.chain(chains, other.name)
			c.Store(&link{topic: other, next: c.Load()})
		}
		t.chains.Store(&chains)
	}
	c := t.chain(chains, tp.name)
	c.Store(&link{topic: tp, next: c.Load()})
}

// remove takes out a topic that is there.
func (t *table) remove(tp *topic) {
	c := t.chain(*t.chains.Load(), tp.name)
	var rest *link
	for l := c.Load(); l != nil; l = l.next {
		if l.topic != tp {
			rest = &link{topic: l.topic, next: rest}
		}
	}
	c.Store(rest)
	t.count.Add(-1)
}

// all yields every topic; those that it yields may be removed meanwhile.
func (t *table) all(yield func(*topic) bool) {
	chains := *t.chains.Load()
	for i := range chains {
		for l := chains[i].Load(); l != nil; l = l.next {
			if !yield(l.topic) {
				return
			}
		}
	}
}
