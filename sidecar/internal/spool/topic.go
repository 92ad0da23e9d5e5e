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

// topic is the state of one topic.
type topic struct {
	name string
	// known is the number of partitions that this process uses until it ends.
	known int
	// by is the identity that the topic was created for while the store was away.
	by string
	// letters says that it is a topic of dead letters. These never wait for a drain, since the
	// drain may wait for them.
	letters bool
	// partitions is the number that the log has; 0 while it is not known. It differs from known
	// where another sidecar created the topic while this one could not reach the store.
	partitions atomic.Int32

	// spooling says that later events go behind those in the spool. It is set while a unit of the
	// gate is held, and cleared while the whole gate is held.
	spooling atomic.Bool
	// gate separates appends to the spool from the handover. Each batch holds one unit of it. The
	// drainer acquires wholeGate to be alone with the topic, and later batches wait behind it.
	gate *semaphore.Weighted
	// drain is held while a page goes into the log, and while events are erased.
	drain    pause.Mutex
	erasures erasures // owned by the holder of drain

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

// add adds a topic, unless another call has added it already, and returns it.
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

// EnsureTopic implements eventlog.Appender. A topic that is new while the store is away gets the
// wanted number of partitions, at least until it is known what the store has; the answer for a
// topic never changes while the process runs.
func (l *Log) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	if t := l.find(name); t != nil {
		return eventlog.Topic{Name: name, Partitions: t.known, By: t.by}, nil
	}
	if !l.health.away.Load() {
		tp, err := l.cfg.Log.EnsureTopic(ctx, name, partitions)
		if err == nil {
			// The spool remembers the topic for when the store is away. If this fails, the topic
			// counts as unknown then.
			_, _ = l.cfg.Store.EnsureTopic(ctx, name, tp.Partitions)
			t := l.add(name, tp.Partitions, tp.Partitions, tp.By)
			return eventlog.Topic{Name: name, Partitions: t.known, By: t.by}, nil
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

// spools reports whether the topic's events may wait in the spool.
func (l *Log) spools(name string) bool {
	return !l.cfg.Off && l.own.trusted.Load() && l.cfg.Policies.Load().Topic(name).Durability.OnStoreUnavailable == policy.StoreSpool
}

// ensured is the number of partitions of a topic in the log. It creates the topic there if it is
// missing.
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
