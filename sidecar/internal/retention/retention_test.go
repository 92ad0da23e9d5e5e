package retention_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
	"github.com/sluice-bus/sluice/test/require"
)

const interval = time.Minute

// fakeLog has expired events per topic, and marks under the name "marks". Only the sweeper's
// goroutine calls it; tests look once that one sleeps, and change it with change.
type fakeLog struct {
	mu      sync.Mutex
	expired map[string]int
	fail    map[string]error
	listing error
	takes   time.Duration // of one batch
	calls   []string
	rules   map[string]eventlog.Retention // of the last topic swept
	times   []time.Time
	heads   []uint64 // of each topic's partitions
	looks   []string // calls of Compact
}

func (l *fakeLog) change(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *fakeLog) Topics(context.Context) ([]eventlog.Topic, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var topics []eventlog.Topic
	for name := range l.expired {
		if name != "marks" {
			topics = append(topics, eventlog.Topic{Name: name, Partitions: 1})
		}
	}
	slices.SortFunc(topics, func(a, b eventlog.Topic) int { return strings.Compare(a.Name, b.Name) })
	return topics, l.listing
}

func (l *fakeLog) Sweep(ctx context.Context, topic string, r eventlog.Retention, now int64, limit int) (int, bool, error) {
	l.change(func() { l.rules = map[string]eventlog.Retention{topic: r} })
	return l.sweep(ctx, topic, now, limit)
}

func (l *fakeLog) SweepMarks(ctx context.Context, now int64, limit int) (int, bool, error) {
	return l.sweep(ctx, "marks", now, limit)
}

func (l *fakeLog) sweep(ctx context.Context, what string, now int64, limit int) (int, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls, l.times = append(l.calls, what), append(l.times, time.UnixMilli(now))
	if err := l.fail[what]; err != nil {
		return 0, false, err
	}
	select {
	case <-time.After(l.takes):
	case <-ctx.Done():
		return 0, false, ctx.Err()
	}
	n := min(limit, l.expired[what])
	l.expired[what] -= n
	return n, l.expired[what] > 0, nil
}

func (l *fakeLog) Extents(context.Context, string) ([]eventlog.Extent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var extents []eventlog.Extent
	for _, head := range l.heads {
		extents = append(extents, eventlog.Extent{First: 1, Head: head})
	}
	return extents, nil
}

func (l *fakeLog) Read(context.Context, string, int, uint64, eventlog.Bounds) ([]*eventlog.Record, error) {
	return nil, errors.New("nobody asked for it")
}

func (l *fakeLog) Compact(_ context.Context, topic string, p int, from uint64, c eventlog.Compaction) (uint64, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks = append(l.looks, fmt.Sprintf("%s/%d from %d", topic, p, from))
	if err := l.fail["compact"]; err != nil {
		return from, 0, err
	}
	if age := time.Duration(c.Now-c.TombstonesBefore) * time.Millisecond; age != retention.TombstoneAge {
		return from, 0, fmt.Errorf("tombstones of %v are to go", age)
	}
	return max(from, min(from+uint64(c.Limit), l.heads[p]+1)), 0, nil
}

func policies(t testing.TB, yaml string) *policy.Snapshot {
	t.Helper()
	list, err := policy.ParseYAML([]byte(yaml))
	require.NoError(t, err)
	s, err := policy.NewSnapshot(list, "test")
	require.NoError(t, err)
	return s
}

// run runs a sweeper in a bubble; stop ends it and waits for it.
func run(t *testing.T, log retention.Log, current *policy.Current, out *bytes.Buffer) (stop func()) {
	s := retention.Sweeper{Log: log, Policies: current, Logger: slog.New(slog.NewTextHandler(out, nil)), Interval: interval, Batch: 10}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		synctest.Wait()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run = %v, want nil", err)
			}
		default:
			t.Error("Run goes on after its context ended")
			<-ended
		}
	}
}

func TestRoundsTakeTurnsInBoundedBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{expired: map[string]int{"a": 25, "b": 0, "c": 10, "marks": 11}}
		stop := run(t, log, policy.NewCurrent(policies(t, "[{name: b, retention: {ttl: 1h}}]")), &bytes.Buffer{})
		defer stop()
		for round, want := range []string{"marks a b c marks a a", "marks b", "marks a b c", "marks b"} {
			synctest.Wait()
			log.change(func() {
				if got := strings.Join(log.calls, " "); got != want {
					t.Errorf("round %d: %q, want %q", round, got, want)
				}
				log.calls = nil
			})
			time.Sleep(interval)
		}
	})
}

func TestRestsAsLongAsItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{expired: map[string]int{"a": 30}, takes: time.Second}
		stop := run(t, log, policy.NewCurrent(policies(t, "[]")), &bytes.Buffer{})
		defer stop()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var gaps []time.Duration
		for i := range log.times[1:] {
			gaps = append(gaps, log.times[i+1].Sub(log.times[i]))
		}
		// The marks have nothing to remove and need no rest.
		if want := []time.Duration{time.Second, 2 * time.Second, 2 * time.Second}; !slices.Equal(gaps, want) {
			t.Errorf("batches began %v apart, want %v", gaps, want)
		}
	})
}

func TestFailuresAreToldAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := &fakeLog{
			expired: map[string]int{"a": 5, "b": 5, "c": 5},
			fail:    map[string]error{"a": errors.New("a is broken"), "c": errors.New("c is broken")},
		}
		stop := run(t, log, policy.NewCurrent(policies(t, "[]")), &out)
		defer stop()
		synctest.Wait()
		if log.expired["b"] != 0 {
			t.Error("a failing topic held up another one")
		}
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "failures=2") ||
			!strings.Contains(got, "topic a: a is broken") {
			t.Errorf("the log says %q", got)
		}
		told := out.Len()
		log.change(func() { log.fail = nil })
		time.Sleep(interval)
		synctest.Wait()
		log.change(func() {
			if log.expired["a"]+log.expired["c"] != 0 || out.Len() != told {
				t.Errorf("left after the second round: %v; the log says %q", log.expired, out.String())
			}
		})
		time.Sleep(5 * interval) // until they are listed again
		synctest.Wait()
		log.change(func() { log.listing, log.calls = errors.New("no list"), nil })
		time.Sleep(interval)
		synctest.Wait()
		if len(log.calls) != 0 || !strings.Contains(out.String(), "list the topics: no list") {
			t.Errorf("without a list: %q, the log says %q", log.calls, out.String())
		}
	})
}

func TestStopsPromptly(t *testing.T) {
	for name, takes := range map[string]time.Duration{"in a batch": time.Hour, "in a rest": 3 * time.Second, "between rounds": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				log := &fakeLog{expired: map[string]int{"a": 1000, "b": 1000}, takes: takes}
				stop := run(t, log, policy.NewCurrent(policies(t, "[]")), &out)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				calls := len(log.calls)
				stop()
				if len(log.calls) != calls || out.Len() != 0 {
					t.Errorf("%d calls after the end; the log says %q", len(log.calls)-calls, out.String())
				}
			})
		})
	}
}

func TestGoesByThePolicyInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{expired: map[string]int{"a": 0}}
		current := policy.NewCurrent(policies(t, "[]"))
		stop := run(t, log, current, &bytes.Buffer{})
		defer stop()
		for i, c := range []struct {
			ttl, window string
			want        eventlog.Retention
		}{
			{"0s", "168h", eventlog.Retention{TTLMS: 0, DedupeWindowMS: 168 * 3_600_000}},
			{"90s", "1s", eventlog.Retention{TTLMS: 90_000, DedupeWindowMS: 1000}},
			{"1us", "1us", eventlog.Retention{TTLMS: 1, DedupeWindowMS: 1}},       // never rounded to "for ever"
			{"1h", "0s", eventlog.Retention{TTLMS: 3_600_000, DedupeWindowMS: 1}}, // an id goes with its event
		} {
			current.Swap(policies(t, fmt.Sprintf("[{name: a, retention: {ttl: %s}, dedupe: {window: %s}}]", c.ttl, c.window)))
			time.Sleep(interval)
			synctest.Wait()
			if !reflect.DeepEqual(log.rules["a"], c.want) {
				t.Errorf("case %d: %+v, want %+v", i, log.rules["a"], c.want)
			}
		}
	})
}
