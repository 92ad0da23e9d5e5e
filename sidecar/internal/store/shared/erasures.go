package shared

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
)

// erasures are the topics of which other sidecars have erased events, until the groups here no
// longer hold these. Each topic waits once, however many signals name it, so there are never more
// entries than topics.
type erasures struct {
	mu     sync.Mutex
	topics map[string]bool
	some   pause.Wake // holds one token: topics may wait
}

func newErasures() *erasures {
	return &erasures{topics: map[string]bool{}, some: pause.NewWake()}
}

// add adds topics. It does not block.
func (e *erasures) add(topics ...string) {
	e.mu.Lock()
	for _, topic := range topics {
		e.topics[topic] = true
	}
	e.mu.Unlock()
	e.some.Set()
}

// drain removes and returns the waiting topics.
func (e *erasures) drain() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := e.topics
	e.topics = map[string]bool{}
	return taken
}

// run rechecks one topic after the other until ctx ends, and returns nil then. It tries a topic
// again after a failure.
func (e *erasures) run(ctx context.Context, recheck func(ctx context.Context, topic string) error, logger *slog.Logger) error {
	retry := pause.Backoff{First: time.Second, Most: time.Minute}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.some:
		}
		failed := false
		for topic := range e.drain() {
			if err := recheck(ctx, topic); err != nil && ctx.Err() == nil {
				logger.Warn("events that another sidecar has erased may be delivered from memory, until the next try", "topic", topic, "error", err)
				e.add(topic)
				failed = true
			}
		}
		if !failed {
			retry.Reset()
		} else if !pause.For(ctx, retry.Step()) {
			return nil
		}
	}
}
