package gateway

import (
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/pacer"
)

// sharedPacer is the delivery bucket of one connection and topic, for all that
// the connection does with the topic.
type sharedPacer struct {
	*pacer.Pacer
	used int // by so many; guarded by the connection's mu
}

// pacers are those of one connection, by topic. The zero value has none, and its owner guards it.
type pacers map[string]*sharedPacer

// use returns the topic's pacer, for one user more. Before it makes one, it forgets unused full
// ones, which are the same as new: a reconnect gains no tokens.
func (ps *pacers) use(policies *policy.Current, topic string) *sharedPacer {
	p := (*ps)[topic]
	if p == nil {
		now := time.Now()
		for name, old := range *ps {
			if old.used == 0 && old.Full(now) {
				delete(*ps, name)
			}
		}
		p = &sharedPacer{Pacer: pacer.New(policies, topic, now)}
		if *ps == nil {
			*ps = make(pacers)
		}
		(*ps)[topic] = p
	}
	p.used++
	return p
}
