package forward

import (
	"context"
	"sync"
)

// Bounds of the requests that are under way or wait. Each holds at most the window of its stream, 32 KiB
// that are copied, and the buffers of two connections.
const (
	maxRequests = 256
	// maxOfPerson bounds those of one person, and maxOfStore those under way to one store; others wait.
	maxOfPerson = maxRequests / 2
	maxOfStore  = 12
)

// places are what requests hold.
type places struct {
	mu     sync.Mutex
	taken  int
	person map[string]int
	shares map[share]*queue
}

// share is a person's part of a store's places.
type share struct{ person, store string }

type queue struct {
	places chan struct{} // has an element for each request under way
	users  int           // that are under way or wait
}

func newPlaces() *places { return &places{person: map[string]int{}, shares: map[share]*queue{}} }

// take takes a place for a request. It waits while the person has too many under way to the store.
func (p *places) take(ctx context.Context, person, store string) (release func(), _ error) {
	p.mu.Lock()
	switch {
	case p.taken >= maxRequests:
		p.mu.Unlock()
		return nil, overloaded("this control plane has %d requests to sidecars under way, the most that it takes", maxRequests)
	case p.person[person] >= maxOfPerson:
		p.mu.Unlock()
		return nil, overloaded("%.64q has %d requests to sidecars under way, the most that one may have", person, maxOfPerson)
	}
	p.taken++
	p.person[person]++
	s := share{person, store}
	q := p.shares[s]
	if q == nil {
		q = &queue{places: make(chan struct{}, maxOfStore)}
		p.shares[s] = q
	}
	q.users++
	p.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, placeWithin)
	defer cancel()
	select {
	case q.places <- struct{}{}:
		return func() {
			<-q.places
			p.leave(s, q)
		}, nil
	case <-ctx.Done():
		p.leave(s, q)
		return nil, overloaded("%.64q has %d requests to the store under way, the most that one may have", person, maxOfStore)
	}
}

func (p *places) leave(s share, q *queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.person[s.person]--; p.person[s.person] == 0 {
		delete(p.person, s.person)
	}
	if q.users--; q.users == 0 {
		delete(p.shares, s)
	}
}
