package spool

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// topic is what is known of one topic.
type topic struct {
	name string
	// known is the number of partitions that this process was told, and goes
	// by until it ends.
	known int
	// by is whom the topic was made for while the store was away.
	by string
	// letters says that these are dead letters. They never wait for a drain,
	// which may be waiting for them.
	letters bool
	// partitions is the number that the log has; 0 while it is not known. It differs from known
	// where another sidecar created the topic while this one could not reach the store.
	partitions atomic.Int32

	// spooling says that later events go behind those in the spool. It is set
	// inside the gate and cleared while the gate is shut.
	spooling atomic.Bool
	// gate is how batches get into the spool. Each holds one unit of it; the drainer acquires
	// wholeGate to be alone with the topic, and batches that come later wait behind it.
	gate *semaphore.Weighted
	// drain is held while a page goes into the log, and while events are erased.
	drain    pause.Mutex
	erasures erasures // whoever holds drain

	// Guarded by the account's lock.
	events int
	bytes  int64
	pacing pacing
}

// wholeGate are all units of a gate.
const wholeGate = math.MaxInt64

func (l *Log) find(name string) *topic {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.topics[name]
}

// add makes a topic known. Where another call was faster, what that said counts.
func (l *Log) add(name string, known, partitions int, by string) *topic {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[name]
	if t == nil {
		t = &topic{
			name: name, known: known, by: by, letters: strings.HasSuffix(name, wire.DeadLetterSuffix),
			gate: semaphore.NewWeighted(wholeGate), drain: pause.NewMutex(),
		}
		t.partitions.Store(int32(partitions))
		l.topics[name] = t
	}
	return t
}

// EnsureTopic implements eventlog.Appender. A topic that is new while the store
// is away gets the wanted number of partitions, at least until it is known what
// the store has; the answer for a topic never changes while the process runs.
func (l *Log) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	if t := l.find(name); t != nil {
		return eventlog.Topic{Name: name, Partitions: t.known}, nil
	}
	if !l.health.away.Load() {
		tp, err := l.cfg.Log.EnsureTopic(ctx, name, partitions)
		if err == nil {
			// So that it is known when the store is away. Without it, publishes
			// go on as they do with an unknown topic.
			_, _ = l.cfg.Store.EnsureTopic(ctx, name, tp.Partitions)
			t := l.add(name, tp.Partitions, tp.Partitions, tp.By)
			return eventlog.Topic{Name: name, Partitions: t.known}, nil
		}
		if !unavailable(err) || ctx.Err() != nil {
			return eventlog.Topic{}, err
		}
		l.lost(err)
	}
	tp, err := l.cfg.Store.LookupTopic(ctx, name)
	if err != nil && ctx.Err() == nil && !unavailable(err) { // not found
		if !l.spools(name) {
			return eventlog.Topic{}, fmt.Errorf("topic %q: %w", name, l.refusal())
		}
		tp, err = l.cfg.Store.EnsureTopic(ctx, name, partitions)
	}
	if err != nil {
		return eventlog.Topic{}, err
	}
	t := l.add(name, tp.Partitions, 0, tp.By)
	return eventlog.Topic{Name: name, Partitions: t.known}, nil
}

// spools says whether the topic's events may wait in the spool.
func (l *Log) spools(name string) bool {
	return l.own.trusted.Load() && l.cfg.Policies.Load().Topic(name).Durability.OnStoreUnavailable == policy.StoreSpool
}

// ensured is the number of partitions that the log has of a topic, which it
// gets there if need be.
func (l *Log) ensured(ctx context.Context, t *topic) (int, error) {
	if n := t.partitions.Load(); n > 0 {
		return int(n), nil
	}
	tp, err := l.cfg.Log.EnsureTopic(eventlog.MadeBy(ctx, t.by), t.name, t.known)
	if err != nil {
		return 0, err
	}
	if tp.Partitions != t.known {
		l.cfg.Logger.Info("the store has another number of partitions of a topic than was known while it was away",
			"topic", t.name, "known", t.known, "partitions", tp.Partitions)
	}
	t.partitions.Store(int32(tp.Partitions))
	return tp.Partitions, nil
}
