package dispatch

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// TestDispatch changes the events of a group in any order, as turns and members do, without a group
// around them. The counts stay those of the events that are there, and in the end members get all
// of them acked.
func TestDispatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newDispatchExam(t)
		t.Repeat(map[string]func(*rapid.T){
			"fetch": x.fetch,
			"join":  x.join,
			"leave": func(t *rapid.T) {
				if m := draw(t, x.d.members); m != nil {
					x.d.Leave(m, rapid.Bool().Draw(t, "counted"), x.now)
				}
			},
			"pause": func(t *rapid.T) {
				if m := draw(t, x.d.members); m != nil {
					m.Paused = !m.Paused
				}
			},
			"open":     func(t *rapid.T) { p := draw(t, x.d.Parts); p.Open = !p.Open },
			"assign":   func(*rapid.T) { x.d.Assign(x.now) },
			"send":     x.send,
			"takeBack": func(t *rapid.T) { x.each(x.d.TakeBack) },
			"end":      x.end,
			"dead-lettered": func(t *rapid.T) {
				if e := draw(t, x.in(DeadLettering)); e != nil {
					x.d.DeadLettered(e)
				}
			},
			"drop": func(t *rapid.T) { x.d.Drop(draw(t, x.d.Parts)) },
			"policy": func(t *rapid.T) {
				x.eff.Delivery.Fairness.By = policy.Grouping(rapid.SampledFrom([]string{"", "key_prefix"}).Draw(t, "by"))
				x.eff.Groups = policy.Groups(rapid.SampledFrom([]string{"", `{"g":{"max_inflight":4}}`}).Draw(t, "limits"))
				x.retune()
			},
			"time": func(t *rapid.T) {
				x.now = x.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "d"))
				x.d.Expire(x.now)
			},
			"": x.check,
		})
		x.finish(t)
	})
}

// dispatchExam is a dispatch, and plays the group and the members that use it.
type dispatchExam struct {
	d       Dispatcher
	eff     policy.Effective
	ordered bool // all members want key order
	now     time.Time
	seq     uint64
	memory  *budget.Budget
}

func newDispatchExam(t *rapid.T) *dispatchExam {
	x := &dispatchExam{now: time.Unix(1e9, 0), eff: policy.Defaults(), ordered: rapid.Bool().Draw(t, "ordered")}
	x.memory = budget.New(budget.Bounds{Memory: 1 << 20, Identities: true})
	x.d = New(testConfig())
	for i := range 2 {
		x.d.Parts = append(x.d.Parts, &Partition{Place: reader.Place{Index: i, Next: 1}, Open: true})
	}
	x.retune()
	return x
}

func (x *dispatchExam) retune() {
	eff := x.eff
	x.d.Retune(&eff, 1, 2, x.now)
}

// fetch lets events of a key come in one partition, as the log does.
func (x *dispatchExam) fetch(t *rapid.T) {
	x.seq++
	i := rapid.IntRange(0, 3).Draw(t, "key")
	rec := &eventlog.Record{}
	rec.Seq, rec.ID = x.seq, strconv.Itoa(rapid.IntRange(0, 9).Draw(t, "id"))
	if i > 0 {
		rec.Key = "k" + strconv.Itoa(i)
	}
	x.d.Admit(x.d.Parts[i%2].Fetched(rec), rapid.IntRange(0, 9).Draw(t, "passed") == 0, x.now)
}

func (x *dispatchExam) join(t *rapid.T) {
	if len(x.d.members) < 3 {
		m := &Member{sink: alwaysReady{}, pacer: alwaysReady{}, Started: true}
		m.memory = x.memory.Of(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "identity"))
		m.Requested.MaxInflight, m.Requested.Ordered, m.Requested.MaxAttempts = new(rapid.IntRange(1, 3).Draw(t, "window")), &x.ordered, new(3)
		x.d.Join(m)
	}
}

func testConfig() Config {
	return Config{
		Group: "g", Expired: func(int) {}, Lookahead: 10_000, MaxBytes: 32 << 20,
	}
}

// alwaysReady is a connection with room and tokens.
type alwaysReady struct{}

func (alwaysReady) Room() bool                                   { return true }
func (alwaysReady) Take(time.Time) (wait time.Duration, ok bool) { return 0, true }

// send does the work after a save.
func (x *dispatchExam) send(*rapid.T) {
	x.each(func(m *Member) {
		for _, a := range m.Out {
			if a.holds() {
				a.Entry.Sent = true
				x.d.Timers.Set(a.Entry, x.now.Add(m.Opts.AckTimeout))
			}
		}
		m.Out = nil
	})
}

// end ends a delivery.
func (x *dispatchExam) end(t *rapid.T) {
	e := draw(t, x.in(InFlight))
	if e == nil {
		return
	}
	switch rapid.IntRange(0, 5).Draw(t, "how") {
	case 0:
		x.d.Settle(e)
	case 1: // with other events of the same id
		id := e.Record.ID
		x.d.Settle(e)
		x.d.SettleID(id)
	case 2:
		x.d.GiveBack(e)
	case 3:
		x.d.Delay(e, "not yet", x.now, time.Second)
	case 4:
		x.d.Fail(e, tracing.Nacked, "no good", x.now, time.Second, 3)
	case 5:
		x.d.Fail(e, tracing.Nacked, "no good", x.now, 0, 0)
	}
}

func (x *dispatchExam) each(do func(*Member)) {
	for _, m := range x.d.members {
		do(m)
	}
}

// in are the events in a state.
func (x *dispatchExam) in(s State) (es []*Event) {
	for _, p := range x.d.Parts {
		for e := range p.All() {
			if e.State == s {
				es = append(es, e)
			}
		}
	}
	return es
}

// draw picks one of the values; the zero value stands for none.
func draw[T any](t *rapid.T, of []T) (one T) {
	if len(of) > 0 {
		one = rapid.SampledFrom(of).Draw(t, "which")
	}
	return one
}

func (x *dispatchExam) check(t *rapid.T) {
	d := &x.d
	held, n, byID := 0, 0, map[string]int{}
	for s := Waiting; s < Settled; s++ {
		for _, e := range x.in(s) {
			held += e.Record.Size()
			n++
			if s == InFlight {
				byID[e.Record.ID]++
			}
			if timed := slices.Contains(d.Timers, e); timed != (s == Delayed || s == InFlight && e.Sent) {
				t.Fatalf("seq %d in state %d is among the timers: %v", e.Seq, s, timed)
			}
			if (e.Member != nil) != (s == InFlight) {
				t.Fatalf("seq %d in state %d has member %v", e.Seq, s, e.Member)
			}
		}
	}
	if held != d.Bytes || d.memory != nil && int64(held) != d.memory.Used() || d.memory.Used() != x.memory.Used() {
		t.Fatalf("%d bytes are held; counted are %d, %d of them taken", held, d.Bytes, x.memory.Used())
	}
	for id, e := range d.ids {
		for ; e != nil; e = e.sameID {
			if n--; e.State >= Settled || e.Record.ID != id {
				t.Fatalf("id %q leads to seq %d in state %d", id, e.Seq, e.State)
			}
		}
	}
	if n != 0 {
		t.Fatalf("%d more events than ids", n)
	}
	for key, q := range d.keys {
		if q.head == nil || q.head.State >= Settled {
			t.Fatalf("the first event of key %q is settled", key)
		}
	}
	for _, m := range d.members {
		if n := len(d.InFlightOf(m)); n != m.Count || n > m.Opts.MaxInflight {
			t.Fatalf("a member with window %d has %d in flight; counted are %d", m.Opts.MaxInflight, n, m.Count)
		}
	}
	if n := len(x.in(InFlight)); n != d.InFlightCount() {
		t.Fatalf("%d in flight, of which members have %d", n, d.InFlightCount())
	}
	if n := len(x.in(DeadLettering)); n != d.DeadLettering {
		t.Fatalf("%d on their way to the dead letter topic; counted are %d", n, d.DeadLettering)
	}
	for _, e := range x.in(InFlight) {
		if byID[e.Record.ID] > 1 || x.ordered && !d.keys.first(e) {
			t.Fatalf("seq %d is in flight beside another event of its id or key", e.Seq)
		}
	}
	for _, e := range x.in(SameID) {
		if byID[e.Record.ID] == 0 {
			t.Fatalf("seq %d waits for an event of its id, of which none is in flight", e.Seq)
		}
	}
	for _, e := range x.in(Waiting) {
		if d.keys.first(e) {
			t.Fatalf("seq %d waits for an earlier event of its key, of which it is the first", e.Seq)
		}
	}
	queued := d.ready
	if d.fair != nil {
		queued = append(d.fair.all(), queued...)
	}
	for _, e := range x.in(Ready) {
		n := 0
		for _, q := range queued {
			if q == e {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("seq %d is %d times among those that are ready", e.Seq, n)
		}
	}
}

// finish has one member ack all events that are left.
func (x *dispatchExam) finish(t *rapid.T) {
	for len(x.d.members) > 0 {
		x.d.Leave(x.d.members[0], false, x.now)
	}
	x.join(t)
	for _, p := range x.d.Parts {
		p.Open = true
	}
	for range 8 + 8*x.seq {
		x.d.Assign(x.now)
		x.send(t)
		for _, e := range append(x.in(InFlight), x.in(DeadLettering)...) {
			if e.State == DeadLettering {
				x.d.DeadLettered(e)
			} else {
				x.d.Settle(e)
			}
		}
		x.now = x.now.Add(time.Minute)
		x.d.Expire(x.now)
		x.check(t)
	}
	if d := &x.d; d.Bytes+len(d.keys)+len(d.ids)+len(d.Timers)+len(d.ready) > 0 || d.fair != nil && d.fair.events > 0 {
		t.Fatalf("not everything is settled: %+v", d)
	}
	for _, p := range x.d.Parts {
		if len(p.events) > 0 || p.Ahead != 0 {
			t.Fatalf("partition %d has %d events left", p.Index, len(p.events))
		}
	}
}
