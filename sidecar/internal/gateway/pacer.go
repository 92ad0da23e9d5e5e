package gateway

import (
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/pacer"
)

// pacers are the delivery buckets of one connection, by topic: everything that the connection does
// with a topic shares one. The zero value has none.
type pacers struct {
	mu  sync.Mutex
	all map[string]*sharedPacer
}

type sharedPacer struct {
	*pacer.Pacer
	users int
}

// use returns the topic's pacer, and counts one more user until release. Before it makes a pacer,
// it forgets unused full ones. These equal new ones, so a client gains no tokens by subscribing
// again.
func (ps *pacers) use(policies *policy.Current, topic string) (p *pacer.Pacer, release func()) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	shared := ps.all[topic]
	if shared == nil {
		now := time.Now()
		for name, old := range ps.all {
			if old.users == 0 && old.Full(now) {
				delete(ps.all, name)
			}
		}
		shared = &sharedPacer{Pacer: pacer.New(policies, topic, now)}
		if ps.all == nil {
			ps.all = make(map[string]*sharedPacer)
		}
		ps.all[topic] = shared
	}
	shared.users++
	return shared.Pacer, func() {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		shared.users--
	}
}
