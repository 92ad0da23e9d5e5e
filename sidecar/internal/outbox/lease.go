package outbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/pause"
)

// drainer is what one run of a drainer says of itself. Nobody else writes it,
// but for removing it once the drainer is taken for dead.
type drainer struct {
	ID   string `bson:"drainer"`
	Name string `bson:"name"` // the sidecar's node id, for people
	Beat int64  `bson:"beat"`
}

// epoch is one drainer's time with a shard. Epochs of a shard are a chain of
// numbers from 1; whoever inserted the highest owns the shard.
type epoch struct {
	Shard    int    `bson:"shard"`
	Number   int64  `bson:"epoch"`
	Owner    string `bson:"owner"`
	Released bool   `bson:"released"`
}

// leaseStore is where drainers see each other. Every method returns soon after
// its context ends; after an error what was asked for may have happened or not.
type leaseStore interface {
	// beat stores what the drainer says of itself, unless a higher beat is
	// stored; errRemoved says that the drainer was removed.
	beat(ctx context.Context, d drainer) error
	// list returns everything. What was written before list was called, and
	// acknowledged, is in it.
	list(ctx context.Context) ([]drainer, []epoch, error)
	// insert stores each of the epochs unless its number exists.
	insert(ctx context.Context, epochs []epoch) error
	// release marks epochs of the caller's as released.
	release(ctx context.Context, epochs []epoch) error
	// remove forgets drainers and epochs; what is not there is no error.
	remove(ctx context.Context, drainers []string, epochs []epoch) error
}

var errRemoved = errors.New("others have removed this drainer, which was dead to them")

// renewWithin is the part of the lease time within which an owner renews or
// stops: what is left of it is the margin for clocks that run at other speeds.
const renewWithin = 0.75

// leases is one drainer's hold on its shards. Its safety is in four rules:
//
//   - A drainer holds what it holds until renewWithin of the lease time has
//     passed since it began to send its last acknowledged beat.
//   - A beat that is acknowledged later than that does not give anything back:
//     the drainer takes its shards again, by new epochs.
//   - A drainer is taken for dead when its beat did not move between two
//     reads, the first of which ended at least the lease time before the
//     second began, on the observer's own monotonic clock.
//   - A shard is taken by inserting the next epoch, of which the store lets
//     exactly one succeed, and held once a later read shows none above it.
//
// run, and what it calls, is for one goroutine; the other methods are for any.
type leases struct {
	store   leaseStore
	self    drainer
	lease   time.Duration
	clock   clock.Clock
	seen    map[string]sighting // of other drainers
	waiting bool                // for shards that others will release, or are dead with
	wake    chan struct{}       // holds one token: a shard that others should have is in use no more
	gained  chan struct{}       // holds one token: a shard was gained

	mu    sync.Mutex
	until time.Time     // nothing is held from then on
	held  [Shards]int64 // the number of the epoch; 0: not held
	users [Shards]int   // who works with what is held, or was
	leave shardSet      // others should have these: no new users
}

// sighting is when an observer first saw a drainer's present beat.
type sighting struct {
	beat  int64
	since time.Time
}

// noBeat is the beat of a drainer that is gone from the store.
const noBeat = -1

func newLeases(store leaseStore, self drainer, lease time.Duration, c clock.Clock) *leases {
	return &leases{
		store: store, self: self, lease: lease, clock: c, seen: map[string]sighting{},
		wake: make(chan struct{}, 1), gained: make(chan struct{}, 1),
	}
}

// usable are the shards that this drainer may work with now.
func (l *leases) usable() shardSet {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.usableLocked()
}

func (l *leases) usableLocked() (set shardSet) {
	if !l.clock.Now().Before(l.until) {
		return 0
	}
	for shard, number := range l.held {
		if number != 0 && !l.leave.has(shard) {
			set = set.with(shard)
		}
	}
	return set
}

// enter keeps those of the shards that are usable from being released until
// exit is called with them.
func (l *leases) enter(want shardSet) (got shardSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	got = want & l.usableLocked()
	for shard := range Shards {
		if got.has(shard) {
			l.users[shard]++
		}
	}
	return got
}

func (l *leases) exit(set shardSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for shard := range Shards {
		if !set.has(shard) {
			continue
		}
		if l.users[shard]--; l.users[shard] == 0 && l.leave.has(shard) {
			signal(l.wake)
		}
	}
}

// signal puts a token into a channel for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run keeps the leases until ctx ends, and reports how each tick went.
func (l *leases) run(ctx context.Context, report func(error)) {
	retry := pause.Backoff{First: l.lease / 100, Most: l.lease / 10}
	for {
		one, cancel := l.clock.WithTimeout(ctx, l.lease/2)
		err := l.tick(one)
		cancel()
		if ctx.Err() != nil {
			return
		}
		report(err)
		rest := l.pause()
		if err != nil {
			rest = retry.Step()
		} else {
			retry.Reset()
		}
		if !l.clock.SleepUnless(ctx, rest, l.wake) {
			return
		}
	}
}

// tick renews the leases and brings them to where they should be.
func (l *leases) tick(ctx context.Context) error {
	if err := l.renew(ctx); err != nil {
		return err
	}
	began := l.clock.Now()
	drainers, epochs, err := l.store.list(ctx)
	if err != nil {
		return err
	}
	l.look(drainers, epochs, l.clock.Now())
	latest := latestEpochs(epochs)
	l.dropLost(latest)

	alive := func(id string) bool { return id == l.self.ID || began.Sub(l.seen[id].since) < l.lease }
	living := []string{l.self.ID}
	for _, d := range drainers {
		if alive(d.ID) {
			living = append(living, d.ID)
		}
	}
	mine := assign(l.self.ID, living)
	if err := l.giveUp(ctx, mine, latest); err != nil {
		return err
	}
	if err := l.take(ctx, mine, latest, alive); err != nil {
		return err
	}
	return l.tidy(ctx, drainers, epochs, latest, alive)
}

// renew sends a sign of life.
func (l *leases) renew(ctx context.Context) error {
	began := l.clock.Now()
	l.self.Beat++
	switch err := l.store.beat(ctx, l.self); {
	case errors.Is(err, errRemoved): // it was dead to others: it goes on as another
		l.mu.Lock()
		l.held = [Shards]int64{}
		l.mu.Unlock()
		l.self.ID, l.self.Beat = uuid.NewString(), 1
		if err := l.store.beat(ctx, l.self); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.clock.Now().Before(l.until) {
		l.held = [Shards]int64{} // too late: others may have begun to take them
	}
	l.until = began.Add(time.Duration(renewWithin * float64(l.lease)))
	return nil
}

// look takes in the beats of the other drainers, as read before now.
func (l *leases) look(drainers []drainer, epochs []epoch, now time.Time) {
	beats := make(map[string]int64, len(drainers))
	for _, e := range epochs {
		beats[e.Owner] = noBeat
	}
	for _, d := range drainers {
		beats[d.ID] = d.Beat
	}
	delete(beats, l.self.ID)
	for id := range l.seen {
		if _, still := beats[id]; !still {
			delete(l.seen, id)
		}
	}
	for id, beat := range beats {
		if s, known := l.seen[id]; !known || s.beat != beat {
			l.seen[id] = sighting{beat: beat, since: now}
		}
	}
}

// latestEpochs is the highest epoch of each shard; number 0 where there is none.
func latestEpochs(epochs []epoch) (latest [Shards]epoch) {
	for _, e := range epochs {
		if e.Shard >= 0 && e.Shard < Shards && e.Number > latest[e.Shard].Number {
			latest[e.Shard] = e
		}
	}
	return latest
}

// dropLost drops what somebody else has taken.
func (l *leases) dropLost(latest [Shards]epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for shard, number := range l.held {
		if latest[shard].Number != number || latest[shard].Owner != l.self.ID {
			l.held[shard] = 0
		}
	}
}

// giveUp releases what others should have, once nobody uses it.
func (l *leases) giveUp(ctx context.Context, mine shardSet, latest [Shards]epoch) error {
	var idle shardSet
	l.mu.Lock()
	l.leave = allShards &^ mine
	for shard := range Shards {
		if l.leave.has(shard) && l.users[shard] == 0 {
			l.held[shard] = 0
			idle = idle.with(shard)
		}
	}
	l.mu.Unlock()
	return l.release(ctx, idle, latest)
}

// release releases those of the shards that are this drainer's.
func (l *leases) release(ctx context.Context, shards shardSet, latest [Shards]epoch) error {
	var own []epoch
	for shard, e := range latest {
		if shards.has(shard) && e.Owner == l.self.ID && !e.Released {
			own = append(own, e)
		}
	}
	if len(own) == 0 {
		return nil
	}
	return l.store.release(ctx, own)
}

// take takes what is free of those shards that are to be this drainer's.
func (l *leases) take(ctx context.Context, mine shardSet, latest [Shards]epoch, alive func(string) bool) error {
	held := l.holding()
	var wanted []epoch
	l.waiting = false
	for shard, last := range latest {
		if !mine.has(shard) || held.has(shard) {
			continue
		}
		free := last.Number == 0 || last.Released || last.Owner == l.self.ID || !alive(last.Owner)
		if !free {
			l.waiting = true
			continue
		}
		wanted = append(wanted, epoch{Shard: shard, Number: last.Number + 1, Owner: l.self.ID})
	}
	if len(wanted) == 0 {
		return nil
	}
	if err := l.store.insert(ctx, wanted); err != nil {
		return err
	}
	// Somebody else may have been first; or was, and this drainer so slow that
	// the number has been removed since: then there is a higher one.
	_, epochs, err := l.store.list(ctx)
	if err != nil {
		return err
	}
	l.hold(wanted, latestEpochs(epochs))
	return nil
}

func (l *leases) holding() (set shardSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for shard, number := range l.held {
		if number != 0 {
			set = set.with(shard)
		}
	}
	return set
}

func (l *leases) hold(wanted []epoch, latest [Shards]epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range wanted {
		if last := latest[e.Shard]; last.Number == e.Number && last.Owner == l.self.ID {
			l.held[e.Shard] = e.Number
			signal(l.gained)
		} else {
			l.waiting = true
		}
	}
}

// tidy removes what nobody needs any more: epochs before those that this
// drainer holds, and, by the drainer of the first shard, dead drainers that
// have lost all that they had. Until then somebody may be watching their beats.
func (l *leases) tidy(ctx context.Context, drainers []drainer, epochs []epoch, latest [Shards]epoch, alive func(string) bool) error {
	held := l.holding()
	var dead []string
	var old []epoch
	for _, e := range epochs {
		if e.Shard >= 0 && e.Shard < Shards && held.has(e.Shard) && e.Number < latest[e.Shard].Number {
			old = append(old, e)
		}
	}
	if held.has(0) {
		owners := map[string]bool{}
		for _, e := range latest {
			owners[e.Owner] = owners[e.Owner] || !e.Released
		}
		for _, d := range drainers {
			if !alive(d.ID) && !owners[d.ID] {
				dead = append(dead, d.ID)
			}
		}
	}
	if len(dead)+len(old) == 0 {
		return nil
	}
	return l.store.remove(ctx, dead, old)
}

// pause is how long to wait before the next tick: less while there is
// something to be had soon.
func (l *leases) pause() time.Duration {
	if l.waiting {
		return l.lease / 20
	}
	return l.lease / 4
}

// end gives everything back at once. Nobody may use anything any more.
func (l *leases) end(ctx context.Context) error {
	l.mu.Lock()
	l.until, l.held = time.Time{}, [Shards]int64{}
	l.mu.Unlock()
	_, epochs, err := l.store.list(ctx)
	if err != nil {
		return err
	}
	if err := l.release(ctx, allShards, latestEpochs(epochs)); err != nil {
		return err // then others have to wait until this drainer is taken for dead
	}
	return l.store.remove(ctx, []string{l.self.ID}, nil)
}
