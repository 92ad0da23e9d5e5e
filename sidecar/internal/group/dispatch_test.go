package group

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
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
					x.d.leave(m, rapid.SampledFrom([]Leaving{Unsubscribed, Disconnected}).Draw(t, "how"), x.now)
				}
			},
			"pause": func(t *rapid.T) {
				if m := draw(t, x.d.members); m != nil {
					m.paused = !m.paused
				}
			},
			"open":     func(t *rapid.T) { p := draw(t, x.parts); p.open = !p.open },
			"assign":   func(*rapid.T) { x.d.assign(x.now) },
			"send":     x.send,
			"takeBack": func(t *rapid.T) { x.each(x.d.takeBack) },
			"end":      x.end,
			"dead-lettered": func(t *rapid.T) {
				if e := draw(t, x.in(deadLettering)); e != nil {
					x.d.deadLettering--
					x.d.settle(e)
				}
			},
			"drop": func(t *rapid.T) { x.d.drop(draw(t, x.parts)) },
			"policy": func(t *rapid.T) {
				x.eff.Delivery.Fairness.By = policy.Grouping(rapid.SampledFrom([]string{"", "key_prefix"}).Draw(t, "by"))
				x.eff.Groups = policy.Groups(rapid.SampledFrom([]string{"", `{"g":{"max_inflight":4}}`}).Draw(t, "limits"))
				x.retune()
			},
			"time": func(t *rapid.T) {
				x.now = x.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "d"))
				x.d.expire(x.now)
			},
			"": x.check,
		})
		x.finish(t)
	})
}

// dispatchExam is a dispatch, and plays the group and the members that use it.
type dispatchExam struct {
	d       dispatch
	parts   partitions
	eff     policy.Effective
	ordered bool // all members want key order
	now     time.Time
	seq     uint64
}

func newDispatchExam(t *rapid.T) *dispatchExam {
	x := &dispatchExam{now: time.Unix(1e9, 0), eff: policy.Defaults(), ordered: rapid.Bool().Draw(t, "ordered")}
	x.d = dispatch{group: "g", metrics: telemetry.Discard().Group(topic, "g"), memory: budget.New(1 << 20), bounds: DefaultBounds(), keys: keys{}, ids: ids{}}
	for i := range 2 {
		x.parts = append(x.parts, &partition{Place: reader.Place{Index: i, Next: 1}, open: true})
	}
	x.retune()
	return x
}

func (x *dispatchExam) retune() {
	eff := x.eff
	x.d.retune(&eff, 1, 2, x.now)
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
	x.d.admit(x.parts[i%2].fetched(rec), rapid.IntRange(0, 9).Draw(t, "passed") == 0, x.now)
}

func (x *dispatchExam) join(t *rapid.T) {
	if len(x.d.members) < 3 {
		m := &Member{sink: &fakeSink{}, pacer: &fakePacer{}, started: true}
		m.requested.MaxInflight, m.requested.Ordered, m.requested.MaxAttempts = new(rapid.IntRange(1, 3).Draw(t, "window")), &x.ordered, new(3)
		m.opts = x.d.limits.resolve(m.requested)
		x.d.join(m)
	}
}

// send does the work after a save.
func (x *dispatchExam) send(*rapid.T) {
	x.each(func(m *Member) {
		for _, a := range m.out {
			if a.holds() {
				a.entry.sent = true
				x.d.timers.set(a.entry, x.now.Add(m.opts.AckTimeout))
			}
		}
		m.out = nil
	})
}

// end ends a delivery.
func (x *dispatchExam) end(t *rapid.T) {
	e := draw(t, x.in(inflight))
	if e == nil {
		return
	}
	switch rapid.IntRange(0, 5).Draw(t, "how") {
	case 0:
		x.d.settle(e)
	case 1: // with other events of the same id
		id := e.rec.ID
		x.d.settle(e)
		x.d.settleID(id)
	case 2:
		x.d.giveBack(e)
	case 3:
		x.d.delay(e, "not yet", x.now, time.Second)
	case 4:
		x.d.fail(e, tracing.Nacked, "no good", x.now, time.Second, 3)
	case 5:
		x.d.fail(e, tracing.Nacked, "no good", x.now, 0, 0)
	}
}

func (x *dispatchExam) each(do func(*Member)) {
	for _, m := range x.d.members {
		do(m)
	}
}

// in are the events in a state.
func (x *dispatchExam) in(s state) (es []*entry) {
	for _, p := range x.parts {
		for e := range p.all() {
			if e.state == s {
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
	held, byID := 0, map[string]int{}
	for s := waiting; s < settled; s++ {
		for _, e := range x.in(s) {
			held += e.rec.Size()
			if s == inflight {
				byID[e.rec.ID]++
			}
			if timed := slices.Contains(d.timers, e); timed != (s == delayed || s == inflight && e.sent) {
				t.Fatalf("seq %d in state %d is among the timers: %v", e.seq, s, timed)
			}
			if (e.member != nil) != (s == inflight) {
				t.Fatalf("seq %d in state %d has member %v", e.seq, s, e.member)
			}
		}
	}
	if held != d.held || int64(held) != d.memory.Used() {
		t.Fatalf("%d bytes are held; counted are %d, %d of them taken", held, d.held, d.memory.Used())
	}
	for _, m := range d.members {
		if n := len(d.inflight(m)); n != m.count || n > m.opts.MaxInflight {
			t.Fatalf("a member with window %d has %d in flight; counted are %d", m.opts.MaxInflight, n, m.count)
		}
	}
	if n := len(x.in(inflight)); n != d.members.inflight() {
		t.Fatalf("%d in flight, of which members have %d", n, d.members.inflight())
	}
	if n := len(x.in(deadLettering)); n != d.deadLettering {
		t.Fatalf("%d on their way to the dead letter topic; counted are %d", n, d.deadLettering)
	}
	for _, e := range x.in(inflight) {
		if byID[e.rec.ID] > 1 || x.ordered && !d.keys.first(e) {
			t.Fatalf("seq %d is in flight beside another event of its id or key", e.seq)
		}
	}
	for _, e := range x.in(doubled) {
		if byID[e.rec.ID] == 0 {
			t.Fatalf("seq %d waits for an event of its id, of which none is in flight", e.seq)
		}
	}
	for _, e := range x.in(waiting) {
		if d.keys.first(e) {
			t.Fatalf("seq %d waits for an earlier event of its key, of which it is the first", e.seq)
		}
	}
	queued := d.ready
	if d.fair != nil {
		queued = append(d.fair.all(), queued...)
	}
	for _, e := range x.in(ready) {
		n := 0
		for _, q := range queued {
			if q == e {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("seq %d is %d times among those that are ready", e.seq, n)
		}
	}
}

// finish has one member ack all events that are left.
func (x *dispatchExam) finish(t *rapid.T) {
	for len(x.d.members) > 0 {
		x.d.leave(x.d.members[0], Unsubscribed, x.now)
	}
	x.join(t)
	for _, p := range x.parts {
		p.open = true
	}
	for range 8 + 8*x.seq {
		x.d.assign(x.now)
		x.send(t)
		for _, e := range append(x.in(inflight), x.in(deadLettering)...) {
			if e.state == deadLettering {
				x.d.deadLettering--
			}
			x.d.settle(e)
		}
		x.now = x.now.Add(time.Minute)
		x.d.expire(x.now)
		x.check(t)
	}
	if d := &x.d; d.held+len(d.keys)+len(d.ids)+len(d.timers)+len(d.ready) > 0 || d.fair != nil && d.fair.events > 0 {
		t.Fatalf("not everything is settled: %+v", d)
	}
	for _, p := range x.parts {
		if len(p.entries) > 0 || p.ahead != 0 {
			t.Fatalf("partition %d has %d entries left", p.Index, len(p.entries))
		}
	}
}
