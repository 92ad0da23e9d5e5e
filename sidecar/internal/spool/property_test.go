package spool_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// The plan of a run is drawn first and then carried out in a bubble, where rapid must not be asked.
type step struct {
	do     string
	topic  string
	key    string
	n      int
	ids    []int // of events that are published again
	to     weather
	d      time.Duration
	policy string
}

var (
	planTopics = []string{"t", "u", "reject"}
	planKeys   = []string{"a", "b", "c", "d", ""}
	planPolicy = []string{
		standard,
		`[{name: "*", partitions: 2, durability: {spool_max_bytes: 2000}}]`,
		`[{name: "*", partitions: 2, durability: {on_store_unavailable: reject}}]`,
	}
)

func drawPlan(t *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		s := step{do: rapid.SampledFrom([]string{
			"publish", "publish", "publish", "publish", "again", "weather", "weather", "sleep", "sleep",
			"outage", "back", "back", "crash", "policy", "elsewhere", "elsewhere", "create",
		}).Draw(t, "do")}
		s.topic = rapid.SampledFrom(planTopics).Draw(t, "topic")
		s.key = rapid.SampledFrom(planKeys).Draw(t, "key")
		s.n = rapid.IntRange(1, 8).Draw(t, "n")
		s.ids = rapid.SliceOfN(rapid.IntRange(0, 200), 1, 4).Draw(t, "ids")
		s.to = weather(rapid.IntRange(int(up), int(pingingOnly)).Draw(t, "weather"))
		s.d = time.Duration(rapid.SampledFrom([]int{1, 20, 300, 2000, 12_000}).Draw(t, "ms")) * time.Millisecond
		s.policy = rapid.SampledFrom(planPolicy).Draw(t, "policy")
		return s
	}), 1, 60).Draw(t, "plan")
}

// try is one event that was published, perhaps several times.
type try struct {
	rec     *eventlog.Record
	repeats int
	told    []string // the words it was answered with
}

// run is a plan under way: a spool behind a real writer, before a log that another sidecar also
// uses.
type run struct {
	*fixture
	writer  *writer.Writer
	mu      sync.Mutex
	dead    bool // answers are lost
	tries   []*try
	foreign map[string]bool // topic/id that the other sidecar has published
}

// Completed implements writer.Receiver; the index is that of the try.
func (r *run) Completed(i int, out eventlog.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead {
		out = eventlog.Outcome{Err: eventlog.ErrUnavailable}
	}
	r.tries[i].told = append(r.tries[i].told, word(out))
}

func (r *run) do(s step) {
	switch s.do {
	case "publish":
		for range s.n {
			rec := record(fmt.Sprintf("%s-%d", s.key, len(r.tries)))
			rec.Topic = s.topic
			rec.FreshID = s.n%2 == 0 // nobody else publishes it
			r.mu.Lock()
			r.tries = append(r.tries, &try{rec: rec})
			r.mu.Unlock()
			r.enqueue(len(r.tries) - 1)
		}
	case "again":
		for _, i := range s.ids {
			if n := len(r.tries); n > 0 {
				r.tries[i%n].repeats++
				r.enqueue(i % n)
			}
		}
	case "elsewhere": // another sidecar publishes an id, with other content
		for _, i := range s.ids[:1] {
			if n := len(r.tries); n > 0 && !r.tries[i%n].rec.FreshID {
				r.publishElsewhere(r.tries[i%n].rec)
			}
		}
	case "create":
		r.shared.create(s.topic, s.n)
	case "weather":
		r.shared.set(s.to)
	case "policy":
		r.policies.Swap(snapshot(r.t, s.policy))
	case "outage":
		r.shared.set(down)
		time.Sleep(30 * time.Millisecond)
	case "back": // goes on in the midst of the drain
		r.shared.set(up)
		for range 3000 {
			if s := r.Stats(); !s.Away {
				break
			}
			time.Sleep(time.Millisecond)
		}
	case "sleep":
		time.Sleep(s.d)
		synctest.Wait()
		r.checkAccount()
	case "crash":
		r.crash()
	}
}

// enqueue enqueues an event as package admit does.
func (r *run) enqueue(i int) {
	rec := *r.tries[i].rec
	if r.tries[i].repeats > 0 {
		rec.FreshID = false
	}
	tp, err := r.EnsureTopic(context.Background(), rec.Topic, 2)
	if err == nil {
		err = r.writer.Enqueue(rec.Topic, eventlog.PartitionOf(rec.Key, rec.ID, tp.Partitions), writer.Item{Record: &rec, Receiver: r, Index: i})
	}
	if err != nil {
		r.Completed(i, eventlog.Outcome{Err: err})
	}
}

func (r *run) publishElsewhere(was *eventlog.Record) {
	rec := *was
	rec.Payload = []byte(`"elsewhere"`)
	r.shared.mu.Lock()
	defer r.shared.mu.Unlock()
	n := len(r.shared.createLocked(rec.Topic, 3).partitions)
	outs := make([]eventlog.Outcome, 1)
	r.shared.store(rec.Topic, eventlog.PartitionOf(rec.Key, rec.ID, n), []*eventlog.Record{&rec}, outs)
	r.foreign[rec.Topic+"/"+rec.ID] = true
}

// checkAccount checks that the spool counts the events that are on the disk.
func (r *run) checkAccount() {
	if r.spooling.Load() == 0 {
		r.wantSpooled(r.Stats().Events)
	}
}

// crash cuts the power while appends may be under way. These get no answer.
func (r *run) crash() {
	r.setDead(true)
	after := r.disk.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
	over, cancel := context.WithCancel(context.Background())
	cancel()
	r.writer.Stop(over)
	r.stop()
	r.disk = after
	r.setDead(false)
	r.begin()
}

func (r *run) setDead(dead bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = dead
}

func (r *run) begin() {
	r.start()
	r.writer = writer.New(writer.Config{Log: r.Log, Bounds: writer.DefaultBounds()})
}

// finish lets everything come to its end.
func (r *run) finish() {
	r.shared.set(up)
	time.Sleep(2 * timeout)
	r.drained()
	r.writer.Stop(context.Background())
	r.checkAccount()
}

// check compares the answers with the events in the log.
func (r *run) check() {
	keys := map[string][]*try{}
	for _, x := range r.tries {
		id := x.rec.Topic + "/" + x.rec.ID
		var found []*eventlog.Record
		for _, rec := range r.shared.all(x.rec.Topic) {
			if rec.ID == x.rec.ID {
				found = append(found, rec)
			}
		}
		mine := len(found) == 1 && string(found[0].Payload) == string(x.rec.Payload)
		if len(found) > 1 {
			r.t.Errorf("%s is stored %d times", id, len(found))
		}
		kept := slices.ContainsFunc(x.told, func(w string) bool {
			return slices.Contains([]string{"ok", "spooled", "duplicate ok", "duplicate spooled"}, w)
		})
		doubtful := slices.Contains(x.told, "unknown")
		switch {
		case len(x.told) != 1+x.repeats:
			r.t.Errorf("%s was published %d times and answered %q", id, 1+x.repeats, x.told)
		case kept && !mine && !(r.foreign[id] && r.isDeadLetter(x.rec)):
			r.t.Errorf("%s was answered %q and is lost: %v", id, x.told, found)
		case !kept && !doubtful && mine:
			r.t.Errorf("%s was answered %q and is stored", id, x.told)
		}
		if kept && mine && !doubtful && x.repeats == 0 && x.rec.Key != "" {
			keys[x.rec.Topic+"/"+x.rec.Key] = append(keys[x.rec.Topic+"/"+x.rec.Key], x)
		}
	}
	for key, list := range keys {
		r.checkOrder(key, list)
	}
}

// checkOrder checks that the events of a key are in the log in the order of their publishes.
func (r *run) checkOrder(key string, list []*try) {
	var last *eventlog.Record
	for _, x := range list {
		r.shared.mu.Lock()
		rec := r.shared.topics[x.rec.Topic].ids[x.rec.ID]
		r.shared.mu.Unlock()
		if last != nil && (rec.Partition != last.Partition || rec.Seq <= last.Seq) {
			r.t.Errorf("key %s: %s at %d/%d comes after %s at %d/%d",
				key, rec.ID, rec.Partition, rec.Seq, last.ID, last.Partition, last.Seq)
		}
		last = rec
	}
}

func (r *run) isDeadLetter(rec *eventlog.Record) bool {
	return slices.ContainsFunc(r.deadLetters, func(letter *eventlog.Record) bool {
		id, _ := letter.Headers.Get("sluice-dlq-id")
		return id == rec.ID && letter.Topic == rec.Topic+".dlq" && string(letter.Payload) == string(rec.Payload)
	})
}

// report is a testing.TB that gathers failures, so that the test can pass them to rapid outside the
// bubble.
type report struct {
	testing.TB
	failures []string
}

func (r *report) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *report) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *report) Fatal(args ...any) { r.Fatalf("%v", args) }

// TestNothingIsLostOrOvertaken: the store fails, the power is cut and policies change. Every event
// that was answered OK is in the log once in the end, each key in order.
func TestNothingIsLostOrOvertaken(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		plan := drawPlan(rt)
		beginning := rapid.SampledFrom([]weather{up, down, losing}).Draw(rt, "weather at the beginning")
		latency := time.Duration(rapid.SampledFrom([]int{0, 1, 10}).Draw(rt, "ms of the spool's latency")) * time.Millisecond
		failures := &report{TB: t}
		synctest.Test(t, func(t *testing.T) {
			r := &run{fixture: newFixture(failures, standard), foreign: map[string]bool{}}
			r.page, r.spoolLatency = 3, latency
			r.shared.set(beginning)
			r.shared.slow(10 * time.Millisecond)
			r.begin()
			defer func() {
				r.writer.Stop(context.Background())
				r.stop()
			}()
			for _, s := range plan {
				r.do(s)
			}
			r.finish()
			r.check()
		})
		if len(failures.failures) > 0 {
			rt.Fatalf("%q", failures.failures)
		}
	})
}
