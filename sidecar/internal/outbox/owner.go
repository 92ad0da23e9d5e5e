package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// owner names the log into which an outbox is drained.
type owner struct {
	Outbox string `bson:"outbox"` // an id of the outbox, the same for all its URLs
	Log    string `bson:"log"`    // the log's id; "": none
	Node   string `bson:"node"`   // the name of the sidecar that wrote it last, for logs
	Lease  int64  `bson:"lease"`  // how long others wait for its next write, in milliseconds
	Beat   int64  `bson:"beat"`   // rises with every write; 0: there is no document
}

// ownerStore keeps the owner. A write that returned an error may have been executed, and may still
// be.
type ownerStore interface {
	find(ctx context.Context) (owner, error)
	// write replaces the document with now, and returns it with the next beat, if it still has the
	// Log and the Beat of was; else ok is false. A Beat of 0 in was stands for no document, anyBeat
	// for any.
	write(ctx context.Context, was, now owner) (_ owner, ok bool, _ error)
}

const anyBeat = -1

// renewWithin is the part of the lease time within which an owner renews or stops. The rest is a
// margin for clocks that run at different speeds.
const renewWithin = 0.75

// ownership is a log's hold on an outbox, as one of its sidecars has it. Three rules make it safe:
//
//   - A sidecar relies on it until renewWithin of the lease time has passed since it began its last
//     accepted write. Each write names the log, so its acceptance proves that no other log has
//     taken the outbox before.
//   - Another log takes it over when the beat did not move between two reads. The first read must
//     have ended at least the lease time before the second began, on the reader's monotonic clock.
//   - The write that takes it over names the log and the beat that it replaces. So it does nothing
//     once the beat has moved, however late it arrives.
//
// One goroutine calls run; any goroutine may call valid.
type ownership struct {
	store  ownerStore
	log    func() string // "" while it is not known
	node   string
	lease  time.Duration
	clock  clock.Clock
	idle   func() bool         // this sidecar has no shard of it
	owned  func(outbox string) // called after every accepted write
	wake   pause.Wake          // holds one token: this sidecar has a shard
	logger *slog.Logger

	standing atomic.Pointer[roster.Standing]

	last  owner     // as last written here, without Log once it is lost; zero: never
	seen  owner     // of another log
	since time.Time // when its beat was first seen
}

// valid reports whether no other log can have taken the outbox at now.
func (o *ownership) valid(now time.Time) bool {
	st := o.standing.Load()
	return st != nil && st.Valid(now)
}

// errNoLog says that the log has not been reached yet. Other packages report that.
var errNoLog = errors.New("no log")

// errAlive says that a sidecar of another log is active.
var errAlive = errors.New("stop those sidecars, or give all sidecars the same shared --store")

// run keeps the ownership until ctx ends, and reports the outcome of each tick. It returns an error
// if another log has owned the outbox from the beginning.
func (o *ownership) run(ctx context.Context, report func(error)) error {
	retry := pause.Backoff{First: o.lease / 100, Most: o.lease / 10}
	for {
		one, cancel := o.clock.WithTimeout(ctx, o.lease/2)
		err := o.tick(one)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errAlive) && o.last == owner{}:
			return err
		}
		if !errors.Is(err, errNoLog) {
			report(err)
		}
		rest := o.lease / 4
		if err != nil {
			rest = retry.Step()
		} else {
			retry.Reset()
		}
		if !o.clock.SleepUnless(ctx, rest, o.wake) {
			return nil
		}
	}
}

// tick renews the ownership, or takes the outbox over if that is allowed.
func (o *ownership) tick(ctx context.Context) error {
	log := o.log()
	if log == "" {
		return errNoLog
	}
	if o.last.Log == log && o.idle() {
		return nil
	}
	began := o.clock.Now()
	mine := owner{Log: log, Node: o.node, Lease: o.lease.Milliseconds()}
	got, ok, err := o.store.write(ctx, owner{Log: log, Beat: anyBeat}, mine)
	if err == nil && !ok {
		got, ok, err = o.acquire(ctx, mine, began)
	}
	if err != nil || !ok {
		return err
	}
	o.last = got
	o.standing.Store(&roster.Standing{Until: began.Add(time.Duration(renewWithin * float64(o.lease)))})
	o.owned(got.Outbox)
	return nil
}

// acquire makes this log the owner, unless another log may be active.
func (o *ownership) acquire(ctx context.Context, mine owner, began time.Time) (_ owner, ok bool, err error) {
	was, err := o.store.find(ctx)
	if err != nil {
		return owner{}, false, err
	}
	if was.Log != "" && was.Log != mine.Log {
		if o.last.Log != "" {
			o.last.Log = ""
			o.logger.Error("another log has taken over the outbox; this sidecar no longer drains it", "sidecar", was.Node)
		}
		moved := was.Log == o.seen.Log && was != o.seen
		if was != o.seen {
			o.seen, o.since = was, o.clock.Now()
		}
		switch {
		case moved:
			return owner{}, false, fmt.Errorf("the sidecar %q drains it into another log, and only sidecars on one shared store "+
				"can share an outbox: %w", was.Node, errAlive)
		case began.Sub(o.since) < max(o.lease, time.Duration(was.Lease)*time.Millisecond):
			return owner{}, false, fmt.Errorf("it is drained into another log by the sidecar %q, unless that is silent for a lease", was.Node)
		}
	}
	got, ok, err := o.store.write(ctx, was, mine)
	if err == nil && !ok {
		err = errors.New("another sidecar was quicker; looking again")
	}
	return got, ok, err
}

// leave gives the outbox up at once, unless another process has written since. It is for a log that
// no other sidecar uses.
func (o *ownership) leave(ctx context.Context) error {
	o.standing.Store(nil)
	if o.last == (owner{}) {
		return nil
	}
	_, _, err := o.store.write(ctx, o.last, owner{Node: o.node})
	return err
}
