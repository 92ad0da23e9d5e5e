package retention_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
	"github.com/sluice-bus/sluice/test/require"
)

// looked wants these calls of Compact since the last time, in order.
func (l *fakeLog) looked(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	l.change(func() {
		if !slices.Equal(l.looks, want) {
			t.Errorf("%s: %q; want %q", when, l.looks, want)
		}
		l.looks = nil
	})
}

func TestCompactsWhatIsNewAndAllOfItOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{expired: map[string]int{"a": 0, "b": 0}, heads: []uint64{12, 0, 3}}
		current := policy.NewCurrent(policies(t, "[{name: a, retention: {compact: true}}]"))
		stop := run(t, log, current, &bytes.Buffer{})
		defer stop()
		log.looked(t, "at first", "a/0 from 1", "a/0 from 11", "a/0 from 13", "a/2 from 1", "a/2 from 4")
		time.Sleep(interval)
		log.looked(t, "without news")
		log.change(func() { log.heads[1] = 2 })
		time.Sleep(interval)
		log.looked(t, "with news", "a/1 from 1", "a/1 from 3")
		log.change(func() { log.heads[0] = 13; log.fail = map[string]error{"compact": errors.New("broken")} })
		time.Sleep(interval)
		log.looked(t, "while it fails", "a/0 from 13")
		log.change(func() { log.fail = nil })
		time.Sleep(interval)
		log.looked(t, "when it works again", "a/0 from 13", "a/0 from 14")

		time.Sleep(55 * interval)
		log.looked(t, "for the rest of the hour")
		time.Sleep(interval)
		again := []string{"a/0 from 1", "a/0 from 11", "a/0 from 14", "a/1 from 1", "a/1 from 3", "a/2 from 1", "a/2 from 4"}
		log.looked(t, "after an hour", again...)

		current.Swap(policies(t, "[]"))
		time.Sleep(interval)
		log.looked(t, "without a policy that wants it")
		current.Swap(policies(t, "[{name: a, retention: {compact: true}}]"))
		time.Sleep(interval)
		log.looked(t, "with one again", again...)
	})
}

func TestSweepsOnlyWhatIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{expired: map[string]int{"a": 0, "b": 0, "marks": 0}, heads: []uint64{1}}
		mine := map[string]bool{"b": true}
		s := retention.Sweeper{
			Log: log, Policies: policy.NewCurrent(policies(t, "[{name: '*', retention: {compact: true}}]")),
			Logger: slog.New(slog.DiscardHandler), Interval: interval, Batch: 10,
			Mine: func(topic string) (is bool) {
				log.change(func() { is = mine[topic] })
				return is
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		log.looked(t, "b is its own", "b/0 from 1", "b/0 from 2")
		if !slices.Equal(log.calls, []string{"b"}) {
			t.Errorf("swept %q; want b alone", log.calls)
		}
		log.change(func() { mine, log.calls = map[string]bool{"a": true, retention.Marks: true}, nil })
		time.Sleep(interval)
		log.looked(t, "a is its own", "a/0 from 1", "a/0 from 2")
		if !slices.Equal(log.calls, []string{"marks", "a"}) {
			t.Errorf("swept %q; want the marks and a", log.calls)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// compacted is a partition as the promises say it is.
type compacted struct {
	events []*eventlog.Record
	head   uint64
}

// settle removes all that a whole pass has to remove.
func (m *compacted) settle(tombstonesBefore int64) {
	latest := map[string]uint64{}
	for _, e := range m.events {
		latest[e.Key] = e.Seq
	}
	m.events = slices.DeleteFunc(m.events, func(e *eventlog.Record) bool {
		return e.Key != "" && e.Seq < m.head &&
			(e.Seq < latest[e.Key] || e.Tombstone() && e.AcceptedAt < tombstonesBefore)
	})
}

func describe(events []*eventlog.Record) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%d:%s=%s ", e.Seq, e.Key, e.Payload)
	}
	return b.String()
}

// Appends and compaction alternate in any steps. After a pass only the latest event of each key is
// left, and at any time each key has its last value.
func TestCompactionAgainstAModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o := pebblelog.Options{Dir: "data", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)}
		log, err := pebblelog.Open(o)
		require.NoError(r, err)
		defer func() { log.Close() }()
		if _, err := log.EnsureTopic(r.Context(), "a", 1); err != nil {
			r.Fatal(err)
		}
		var m compacted
		now, ids := int64(1_723_140_000_000), 0
		read := func() []*eventlog.Record {
			events, err := log.Read(r.Context(), "a", 0, 1, eventlog.Bounds{Events: 1 << 20})
			require.NoError(r, err)
			return events
		}
		pass := func(from uint64, limit, steps int, c eventlog.Compaction) {
			for c.Limit = limit; steps > 0; steps-- {
				next, _, err := log.Compact(r.Context(), "a", 0, from, c)
				require.NoError(r, err)
				if next == from {
					return
				}
				from = next
			}
		}
		// Of what a few steps remove, a later pass finds nothing that it would have kept.
		rules := func() eventlog.Compaction { return eventlog.Compaction{Now: now, TombstonesBefore: now - 2} }
		r.Repeat(map[string]func(*rapid.T){
			"append": func(r *rapid.T) {
				now += rapid.Int64Range(0, 2).Draw(r, "ms later")
				var batch []*eventlog.Record
				for range rapid.IntRange(1, 6).Draw(r, "events") {
					ids++
					batch = append(batch, &eventlog.Record{AcceptedAt: now, Event: wire.Event{
						ID: fmt.Sprint(ids), TS: now, Topic: "a",
						Key:     rapid.SampledFrom([]string{"", "k", "l", "kk"}).Draw(r, "key"),
						Payload: []byte(rapid.SampledFrom([]string{"1", "null"}).Draw(r, "payload")),
					}})
				}
				for i, out := range log.Append(r.Context(), "a", 0, batch) {
					if out.Err != nil || out.Seq != m.head+uint64(i)+1 {
						r.Fatalf("append at head %d: %+v", m.head, out)
					}
				}
				m.events, m.head = append(m.events, batch...), m.head+uint64(len(batch))
			},
			"some steps": func(r *rapid.T) {
				before := read()
				pass(rapid.Uint64Range(0, m.head+1).Draw(r, "from"), rapid.IntRange(1, 4).Draw(r, "limit"),
					rapid.IntRange(1, 4).Draw(r, "steps"), rules())
				// A removed key shows a tombstone or nothing; any other key shows its last value.
				values := func(events []*eventlog.Record) string {
					latest := map[string]string{}
					for _, e := range events {
						if latest[e.Key] = string(e.Payload); e.Tombstone() {
							delete(latest, e.Key)
						}
					}
					delete(latest, "")
					return fmt.Sprint(latest)
				}
				if after := read(); values(after) != values(before) {
					r.Fatalf("before: %s\nafter: %s", describe(before), describe(after))
				}
			},
			"whole pass": func(r *rapid.T) {
				c := rules()
				pass(1, rapid.IntRange(1, 10).Draw(r, "limit"), 1<<20, c)
				m.settle(c.TombstonesBefore)
				if got := read(); describe(got) != describe(m.events) {
					r.Fatalf("left:  %s\nwanted: %s", describe(got), describe(m.events))
				}
			},
			"sweep": func(r *rapid.T) {
				ttl := rapid.Int64Range(1, 20).Draw(r, "ttl")
				if _, _, err := log.Sweep(r.Context(), "a", eventlog.Retention{TTLMS: ttl}, now, 1000); err != nil {
					r.Fatal(err)
				}
				m.events = slices.DeleteFunc(m.events, func(e *eventlog.Record) bool { return e.AcceptedAt <= now-ttl })
			},
			"reopen": func(r *rapid.T) {
				if rapid.IntRange(0, 5).Draw(r, "reopen, if 0") > 0 {
					return
				}
				require.NoError(r, log.Close())
				if log, err = pebblelog.Open(o); err != nil {
					r.Fatal(err)
				}
			},
			"": func(r *rapid.T) {
				extents, err := log.Extents(r.Context(), "a")
				if err != nil || extents[0].Head != m.head {
					r.Fatalf("extents %+v, %v; the head is %d", extents, err, m.head)
				}
			},
		})
	})
}
