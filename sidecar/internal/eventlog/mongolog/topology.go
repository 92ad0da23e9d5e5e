package mongolog

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/event"
)

// topology is what the driver knows of the servers.
type topology struct {
	mu          sync.Mutex
	unsupported error // why the driver can use none of them
	primary     string
	term        context.Context // ends when another server becomes the primary
	endTerm     context.CancelFunc
}

// primaryTerm ends when another server becomes the primary of its replica set.
func (t *topology) primaryTerm() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.term == nil {
		t.term, t.endTerm = context.WithCancel(context.Background())
	}
	return t.term
}

// refusal says why no server can be used; nil if one can, or has not answered yet.
func (t *topology) refusal() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unsupported
}

// changed takes the driver's description of the servers. While there is no primary, the last one
// counts.
func (t *topology) changed(e *event.TopologyDescriptionChangedEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unsupported = refusalOf(e.NewDescription)
	for _, s := range e.NewDescription.Servers {
		if addr := s.Addr.String(); s.Kind == "RSPrimary" && addr != t.primary {
			t.primary = addr
			if t.endTerm != nil {
				t.endTerm()
				t.term, t.endTerm = nil, nil
			}
		}
	}
}
