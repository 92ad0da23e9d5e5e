package mongolog

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/event"
)

// primary is the server that the driver considers the primary of its replica set.
type primary struct {
	mu   sync.Mutex
	addr string
	ctx  context.Context // ends when another server becomes the primary
	end  context.CancelFunc
}

// term ends when another server becomes the primary.
func (p *primary) term() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil {
		p.ctx, p.end = context.WithCancel(context.Background())
	}
	return p.ctx
}

// changed takes the driver's description of the servers. While there is no primary, addr stays that
// of the last one.
func (p *primary) changed(e *event.TopologyDescriptionChangedEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range e.NewDescription.Servers {
		if addr := s.Addr.String(); s.Kind == "RSPrimary" && addr != p.addr {
			p.addr = addr
			if p.end != nil {
				p.end()
				p.ctx, p.end = nil, nil
			}
		}
	}
}
