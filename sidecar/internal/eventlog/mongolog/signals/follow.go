package signals

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// Follow implements eventlog.Signals.
func (x *Signals) Follow(ctx context.Context, wanted eventlog.Topics, heard func(s eventlog.Signal, missed []string)) error {
	if !x.store.Join() {
		return core.ErrClosed
	}
	defer x.store.Leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.store.Lasting(), cancel)()
	f := &following{store: x.store, sender: x.unsent.id, wanted: wanted, heard: heard}
	f.run(ctx)
	if x.store.Lasting().Err() != nil {
		return core.ErrClosed
	}
	return nil
}

// followSpacing is the wait after a change of topics before followers change. Subscriptions to many
// topics arrive one after the other.
const followSpacing = 100 * time.Millisecond

// run keeps a follower for each collection with signals of wanted topics, until ctx ends. A
// follower that follows unwanted topics too continues so for tailAwait, since readers often come
// back.
func (f *following) run(ctx context.Context) {
	var followers [core.SignalShards]*follower
	defer func() {
		for _, r := range followers {
			r.stop()
		}
	}()
	for ctx.Err() == nil {
		topics, changed := f.wanted()
		begun, wait := false, time.Hour
		for shard, slots := range f.slots(topics) {
			r := followers[shard]
			left := r.left(slots)
			if left <= 0 {
				r.stop()
				followers[shard] = f.start(ctx, shard, slots)
				begun = true
			}
			wait = min(wait, max(left, followSpacing))
		}
		if !begun || f.store.Clock.Sleep(ctx, followSpacing) {
			f.store.Clock.SleepUnless(ctx, wait, changed)
		}
	}
}

// retry repeats do until it succeeds or ctx ends.
func (f *following) retry(ctx context.Context, do func(ctx context.Context, progress func()) error) error {
	var wait core.Backoff
	for {
		err := do(ctx, func() { wait = core.Backoff{} })
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		f.store.Logger.Debug("following the signals of other sidecars failed", "error", err)
		if wait.Sleep(ctx, f.store.Clock, signalRetry) != nil {
			return ctx.Err()
		}
	}
}

// slots are the slots of those topics by collection, each once, ascending.
func (f *following) slots(topics []string) (by [core.SignalShards][]int32) {
	for _, topic := range topics {
		slot := slotOf(topic)
		shard := shardOf(slot)
		by[shard] = append(by[shard], slot)
	}
	for shard := range by {
		slices.Sort(by[shard])
		by[shard] = slices.Compact(by[shard])
	}
	return by
}

// start begins a follower; nil if there is nothing to follow.
func (f *following) start(ctx context.Context, shard int, slots []int32) *follower {
	if len(slots) == 0 {
		return nil
	}
	r := &follower{following: f, shard: shard, slots: slots, ended: make(chan struct{})}
	ctx, r.cancel = context.WithCancel(ctx)
	go func() {
		defer close(r.ended)
		_ = f.retry(ctx, r.tail)
	}()
	return r
}

func (f *follower) stop() {
	if f != nil {
		f.cancel()
		<-f.ended
	}
}

// left is how long the follower may continue if these slots are wanted.
func (f *follower) left(wanted []int32) time.Duration {
	const forever = time.Hour
	switch {
	case f == nil && len(wanted) == 0:
		return forever
	case f == nil || slices.ContainsFunc(wanted, func(slot int32) bool { return !f.has(slot) }):
		return 0
	case len(wanted) == len(f.slots):
		f.spare = time.Time{}
		return forever
	case f.spare.IsZero():
		f.spare = f.store.Clock.Now()
	}
	return tailAwait - f.store.Clock.Since(f.spare)
}
