package group

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"pgregory.net/rapid"
)

// fakePuller is a sink that takes as many events as it is told to.
type fakePuller struct {
	mu    sync.Mutex
	wants int
	asks  uint64
	seen  uint64 // of the last Looked
	got   []Delivery
}

func (s *fakePuller) Room() bool { n, _ := s.Wants(); return n > 0 }

func (s *fakePuller) Wants() (int, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wants, s.asks
}

func (s *fakePuller) Looked(asked uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = asked
}

func (s *fakePuller) Blocked() string { return BlockedNotPulling }

func (s *fakePuller) Address() string { return "10.0.0.1:1" }

func (s *fakePuller) Deliver(ds []Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wants -= len(ds)
	s.got = append(s.got, ds...)
}

// pullingClient is a member that pulls.
type pullingClient struct {
	*fakePuller
	*Member
	w *world
}

func (w *world) joinPuller(opts ...option) *pullingClient {
	w.t.Helper()
	s := Subscription{Topic: topic, Group: "g", Sink: &fakePuller{}, Pacer: &fakePacer{}}
	for _, o := range append([]option{earliest}, opts...) {
		o(&s)
	}
	m, err := w.m.Subscribe(context.Background(), s)
	if err != nil {
		w.t.Fatalf("subscribe: %v", err)
	}
	m.Start()
	synctest.Wait()
	return &pullingClient{s.Sink.(*fakePuller), m, w}
}

// pull asks for n events and returns those that come at once.
func (k *pullingClient) pull(n int) []Delivery {
	k.w.t.Helper()
	k.mu.Lock()
	k.wants = n
	k.asks++
	k.mu.Unlock()
	k.Wake()
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	got := k.got
	k.got, k.wants = nil, 0
	if k.seen != k.asks {
		k.w.t.Errorf("asked %d times, and looked for %d", k.asks, k.seen)
	}
	return got
}

func names(ds []Delivery) (out string) {
	for i, d := range ds {
		if i > 0 {
			out += " "
		}
		out += fmt.Sprint(d.Record.ID, "/", d.Attempt)
	}
	return out
}

func leases(ds ...Delivery) (ls []Lease) {
	for _, d := range ds {
		ls = append(ls, d.Lease)
	}
	return ls
}

// settleLeases settles leases, and returns those that were stale once that is durable.
func (w *world) settleLeases(settle func(m *Manager, done Settled)) (stale []int) {
	w.t.Helper()
	answered := false
	settle(w.m, func(absent, lost []int, err error) {
		if err != nil {
			w.t.Errorf("%v", err)
		}
		answered, stale = true, append(absent, lost...)
	})
	synctest.Wait()
	if !answered {
		w.t.Errorf("not answered")
	}
	return stale
}

func (w *world) ackLeases(ls ...Lease) (stale []int) {
	w.t.Helper()
	return w.settleLeases(func(m *Manager, done Settled) { m.AckLeases(topic, "g", ls, done) })
}

func (w *world) nackLeases(how wire.Nack, ls ...Lease) (stale []int) {
	w.t.Helper()
	return w.settleLeases(func(m *Manager, done Settled) { m.NackLeases(topic, "g", ls, how, done) })
}

func TestPullerGetsWhatItWants(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b", "c", "d")
		k := w.joinPuller(window(3))
		if got := names(k.pull(0)); got != "" {
			t.Errorf("unasked: %s", got)
		}
		first := k.pull(2)
		if got := names(first); got != "a/1 b/1" {
			t.Errorf("got %s", got)
		}
		if got := names(k.pull(5)); got != "c/1" { // the window is 3
			t.Errorf("got %s", got)
		}
		if got := names(k.pull(5)); got != "" || k.Inflight() != 3 {
			t.Errorf("over the window: %s", got)
		}
		// The deadline also runs without a request.
		w.m.ReturnLeases(topic, "g", leases(first[1]))
		synctest.Wait()
		if got := names(k.pull(1)); got != "b/1" {
			t.Errorf("what was returned counts no attempt: %s", got)
		}
	})
}

func TestLeaseNamesOneDelivery(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		k := w.joinPuller()
		first := k.pull(2)
		old := leases(first...)
		now := time.Duration(0)
		if stale := w.nackLeases(nack("", &now), old[0]); stale != nil {
			t.Error("the nack found nothing")
		}
		second := k.pull(1)
		if got := names(second); got != "a/2" {
			t.Fatalf("got %s", got)
		}
		for _, l := range []Lease{old[0], {Partition: 7}, {Partition: -1}, {Seq: 1 << 40}} {
			acked, nacked, extended := w.ackLeases(l), w.nackLeases(nack("", nil), l), w.m.ExtendLeases(topic, "g", []Lease{l}, time.Hour)
			if len(acked)+len(nacked)+len(extended) != 3 {
				t.Errorf("%+v is not stale", l)
			}
		}
		if stale := w.m.ExtendLeases(topic, "g", leases(second...), time.Hour); stale != nil {
			t.Error("the extension found nothing")
		}
		advance(time.Minute)
		if got := names(k.pull(2)); got != "b/2" { // a is extended
			t.Errorf("after a minute: %s", got)
		}
		if stale := w.ackLeases(append(leases(second...), old[1])...); !slices.Equal(stale, []int{1}) {
			t.Errorf("stale: %v", stale)
		}
		w.seekEarliest()
		if got := names(k.pull(5)); got != "a/1 b/1" {
			t.Errorf("after a seek: %s", got)
		}
		w.m.AckLeases(topic, "nobody", old, func(absent, _ []int, _ error) {
			if len(absent) != 2 {
				t.Errorf("a group that is not known: %v", absent)
			}
		})
	})
}

// TestMergedFollower: partitions come in (ts, id) order. A follower may start behind any event, and
// goes on right there.
func TestMergedFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		defer w.stop()
		const n = 40
		for i := range n {
			w.publishN(1, fmt.Sprint("k", i%7))
			if i%3 == 0 { // some share a millisecond
				time.Sleep(time.Millisecond)
			}
		}
		follow := func(o wire.SubscribeOptions) []string {
			sink := &fakeSink{}
			f, err := w.m.Follow(context.Background(), Subscription{Topic: topic, Options: o, Sink: sink, Pacer: &fakePacer{}, Merged: true})
			require.NoError(t, err)
			f.Start()
			synctest.Wait()
			f.Close()
			var got []string
			for _, d := range sink.got {
				got = append(got, d.Record.ID)
			}
			return got
		}
		all := follow(wire.SubscribeOptions{From: wire.FromEarliest})
		if len(all) != n {
			t.Fatalf("%d events: %v", len(all), all)
		}
		for i, id := range all {
			if rest := follow(wire.SubscribeOptions{From: wire.FromAfterID, AfterID: id}); !slices.Equal(rest, all[i+1:]) {
				t.Errorf("after %s: %v, want %v", id, rest, all[i+1:])
			}
		}
	})
}

// drive is a property's model of deliveries to pulls.
type drive struct {
	*world
	k      *pullingClient
	events map[string]bool // true: acked or nacked for good
	held   []loan
	past   []Lease // that are over
}

type loan struct {
	id    string
	lease Lease
	due   time.Time
}

// TestLeasesKeepTheirPromises pulls, acks, nacks, extends, returns, lets time pass and seeks in any
// order. A lease is good until the model says that it is over, and never after. In the end every
// event is delivered and acked.
func TestLeasesKeepTheirPromises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			w := newWorld(t, rapid.IntRange(1, 3).Draw(t, "partitions"))
			defer w.stop()
			x := &drive{world: w, k: w.joinPuller(window(6), attempts(1000)), events: map[string]bool{}}
			t.Repeat(map[string]func(*rapid.T){
				"publish": x.publishSome,
				"pull":    x.pullSome,
				"ack":     func(t *rapid.T) { x.settle(t, "ack") },
				"nack":    func(t *rapid.T) { x.settle(t, "nack") },
				"return":  func(t *rapid.T) { x.settle(t, "return") },
				"extend":  x.extend,
				"time":    x.pass,
				"seek":    x.seek,
			})
			x.finish(t)
		})
	})
}

func (x *drive) publishSome(t *rapid.T) {
	for range rapid.IntRange(1, 4).Draw(t, "n") {
		x.ids++
		id := "e" + strconv.Itoa(x.ids)
		x.events[id] = false
		x.log.append(topic, record(id, rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "key")))
	}
	synctest.Wait()
}

func (x *drive) pullSome(t *rapid.T) { x.take(t, x.k.pull(rapid.IntRange(1, 5).Draw(t, "max"))) }

func (x *drive) take(t *rapid.T, ds []Delivery) {
	keys := map[string]bool{}
	for _, d := range ds {
		for _, l := range x.held {
			if l.id == d.Record.ID {
				t.Fatalf("%s is delivered while it is in flight", d.Record.ID)
			}
		}
		if key := d.Record.Key; key != "" && keys[key] {
			t.Fatalf("two events of key %s are in flight", key)
		}
		keys[d.Record.Key] = true
		x.held = append(x.held, loan{d.Record.ID, d.Lease, time.Now().Add(d.AckTimeout)})
	}
	if len(x.held) > 6 {
		t.Fatalf("%d in flight", len(x.held))
	}
}

// pick draws leases, some of them stale, and says which.
func (x *drive) pick(t *rapid.T) (ls []Lease, stale []int) {
	for _, l := range x.held {
		if rapid.Bool().Draw(t, l.id) {
			ls = append(ls, l.lease)
		}
	}
	if len(x.past) > 0 && rapid.Bool().Draw(t, "stale") {
		ls, stale = append(ls, rapid.SampledFrom(x.past).Draw(t, "lease")), []int{len(ls)}
	}
	return ls, stale
}

func (x *drive) settle(t *rapid.T, how string) {
	ls, want := x.pick(t)
	got := want
	switch how {
	case "ack":
		got = x.ackLeases(ls...)
	case "nack":
		var delay time.Duration
		got = x.nackLeases(nack("", &delay), ls...)
	case "return":
		x.m.ReturnLeases(topic, "g", ls)
		synctest.Wait()
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s of %v: stale %v, want %v", how, ls, got, want)
	}
	x.over(func(l loan) bool {
		is := slices.Contains(ls, l.lease)
		if is && how == "ack" {
			x.events[l.id] = true
		}
		return is
	})
}

// over notes the leases that are over.
func (x *drive) over(is func(loan) bool) {
	x.held = slices.DeleteFunc(x.held, func(l loan) bool {
		if !is(l) {
			return false
		}
		x.past = append(x.past, l.lease)
		return true
	})
}

func (x *drive) extend(t *rapid.T) {
	ls, want := x.pick(t)
	by := time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second
	if got := x.m.ExtendLeases(topic, "g", ls, by); !slices.Equal(got, want) {
		t.Fatalf("extending %v: stale %v, want %v", ls, got, want)
	}
	for i := range x.held {
		if slices.Contains(ls, x.held[i].lease) {
			x.held[i].due = time.Now().Add(by)
		}
	}
	synctest.Wait()
}

func (x *drive) pass(t *rapid.T) {
	advance(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
	now := time.Now()
	x.over(func(l loan) bool { return !l.due.After(now) })
}

func (x *drive) seek(*rapid.T) {
	x.seekEarliest()
	x.over(func(loan) bool { return true })
	for id := range x.events {
		x.events[id] = false
	}
}

// finish acks everything that comes.
func (x *drive) finish(t *rapid.T) {
	for {
		x.take(t, x.k.pull(100))
		if len(x.held) == 0 {
			break
		}
		if stale := x.ackLeases(leasesOfLoans(x.held)...); stale != nil {
			t.Fatalf("stale %v", stale)
		}
		x.over(func(l loan) bool { x.events[l.id] = true; return true })
	}
	for id, acked := range maps.All(x.events) {
		if !acked {
			t.Fatalf("%s is lost", id)
		}
	}
}

func leasesOfLoans(held []loan) (ls []Lease) {
	for _, l := range held {
		ls = append(ls, l.lease)
	}
	return ls
}
