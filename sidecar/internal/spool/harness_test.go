package spool_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/require"
)

// fixture is a spool on a disk in memory before a fakeLog, running.
type fixture struct {
	*spool.Log
	t        testing.TB
	shared   *fakeLog
	disk     vfs.FS
	store    *pebblelog.Log
	policies *policy.Current
	maxBytes int64
	off      bool
	url      string // of the shared log
	page     int    // events; 0: as it is
	// spoolLatency is before and after every append to the spool; spooling counts those under way.
	spoolLatency time.Duration
	spooling     atomic.Int32
	diskFull     atomic.Bool // appends to the spool are refused for want of room
	diskFails    atomic.Bool // appends to the spool are stored, and then fail
	logged       *lockedbuffer.Buffer

	cancel context.CancelFunc
	done   chan error

	mu            sync.Mutex
	announced     map[string][]string // ids by topic
	heard         int
	deadLetters   []*eventlog.Record
	deadLettersOf map[string]int // counted, by topic
	deadLetterErr error
	onDeadLetter  func(rec *eventlog.Record, done func(error)) // instead, if set
}

// standard policies: topics spool, except for those that begin with "reject".
const standard = `[{name: "*", partitions: 2}, {name: "reject*", durability: {on_store_unavailable: reject}}]`

func snapshot(t testing.TB, yaml string) *policy.Snapshot {
	t.Helper()
	list, err := policy.ParseYAML([]byte(yaml))
	require.NoError(t, err)
	s, err := policy.NewSnapshot(list, "test")
	require.NoError(t, err)
	return s
}

func newFixture(t testing.TB, policies string) *fixture {
	f := &fixture{
		t: t, shared: newFakeLog(), disk: vfs.NewCrashableMem(), logged: &lockedbuffer.Buffer{},
		policies: policy.NewCurrent(snapshot(t, policies)), announced: map[string][]string{}, deadLettersOf: map[string]int{},
	}
	return f
}

// start opens the spool and runs it.
func (f *fixture) start() {
	f.t.Helper()
	f.open()
	f.run()
}

func (f *fixture) open() {
	f.t.Helper()
	var err error
	f.store, err = pebblelog.Open(pebblelog.Options{Dir: "spool", FS: f.disk, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.t.Fatal(err)
	}
	f.Log, err = spool.Open(context.Background(), spool.Config{
		Log: f.shared, Ping: f.shared.Ping, StoreID: f.shared.StoreID, StoreURL: f.url, Folder: "spool", Store: slowStore{f.store, f},
		Policies: f.policies, MaxBytes: f.maxBytes, Off: f.off,
		Announce: func(topic string, partition int, recs []*eventlog.Record) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, r := range recs {
				if r.Seq == 0 || r.Partition != partition || r.Topic != topic {
					f.t.Errorf("announced in partition %d of %s: %+v", partition, topic, r)
				}
				f.announced[topic] = append(f.announced[topic], r.ID)
			}
		},
		Heard: func(string, int, uint64) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.heard++
		},
		Erasures: f.shared,
		DeadLettered: func(topic string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.deadLettersOf[topic]++
		},
		Logger: slog.New(slog.NewTextHandler(f.logged, nil)),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if f.page > 0 {
		f.SetPage(f.page)
	}
}

// slowStore takes its time to append.
type slowStore struct {
	*pebblelog.Log
	f *fixture
}

func (s slowStore) Append(ctx context.Context, topic string, partition int, batch []*eventlog.Record) []eventlog.Outcome {
	s.f.spooling.Add(1)
	defer s.f.spooling.Add(-1)
	if s.f.spoolLatency > 0 {
		time.Sleep(s.f.spoolLatency)
		defer time.Sleep(s.f.spoolLatency)
	}
	if s.f.diskFull.Load() {
		return slices.Repeat([]eventlog.Outcome{{Err: &eventlog.DiskFullError{}}}, len(batch))
	}
	outs := s.Log.Append(ctx, topic, partition, batch)
	if s.f.diskFails.Load() {
		for i := range outs {
			outs[i] = eventlog.Outcome{Err: fmt.Errorf("%w: %w", eventlog.ErrUnavailable, errDisk)}
		}
	}
	return outs
}

func (s slowStore) Read(ctx context.Context, topic string, partition int, from uint64, b eventlog.Bounds) ([]*eventlog.Record, error) {
	if s.f.diskFails.Load() {
		return nil, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, errDisk)
	}
	return s.Log.Read(ctx, topic, partition, from, b)
}

// AppendDeadLetter implements spool.DeadLetters.
func (f *fixture) AppendDeadLetter(_ context.Context, rec *eventlog.Record, done func(error)) {
	if f.onDeadLetter != nil {
		f.onDeadLetter(rec, done)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deadLetterErr == nil && !slices.ContainsFunc(f.deadLetters, func(r *eventlog.Record) bool { return r.ID == rec.ID }) {
		f.deadLetters = append(f.deadLetters, rec)
	}
	go done(f.deadLetterErr)
}

func (f *fixture) run() {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel, f.done = cancel, make(chan error, 1)
	done, log := f.done, f.Log
	go func() { done <- log.Run(ctx, f) }()
}

// stop ends Run and closes the spool.
func (f *fixture) stop() {
	f.t.Helper()
	f.cancel()
	if err := <-f.done; err != nil {
		f.t.Errorf("Run: %v", err)
	}
	if err := f.store.Close(); err != nil {
		f.t.Errorf("closing the spool: %v", err)
	}
}

// crash cuts the power: only synced data is kept. The spool starts again on it.
func (f *fixture) crash() {
	f.t.Helper()
	after := f.disk.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
	f.stop()
	f.disk = after
	f.start()
}

// within runs a test in a bubble, with a spool that is running.
func within(t *testing.T, policies string, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, policies)
		f.start()
		defer func() { f.stop() }()
		test(t, f)
	})
}

// record is an event without topic; the key is what stands before the id's dash.
func record(id string) *eventlog.Record {
	key, _, _ := strings.Cut(id, "-")
	return &eventlog.Record{
		Event:      wire.Event{ID: id, TS: 1000, Key: key, Payload: []byte(`{"id":"` + id + `"}`)},
		AcceptedAt: 1000,
	}
}

// publish appends events to their partitions, and returns one word for each: ok, spooled, away,
// full, unknown, conflict, and duplicate with the first outcome.
func (f *fixture) publish(topic string, ids ...string) []string {
	f.t.Helper()
	recs := make([]*eventlog.Record, len(ids))
	for i, id := range ids {
		recs[i] = record(id)
	}
	return f.publishAll(topic, recs)
}

func (f *fixture) publishAll(topic string, recs []*eventlog.Record) []string {
	f.t.Helper()
	tp, err := f.EnsureTopic(context.Background(), topic, f.policies.Load().Topic(topic).Partitions)
	if err != nil {
		return slices.Repeat([]string{word(eventlog.Outcome{Err: err})}, len(recs))
	}
	words := make([]string, len(recs))
	for partition := range tp.Partitions {
		var batch []*eventlog.Record
		var at []int
		for i, r := range recs {
			r.Topic = topic
			if eventlog.PartitionOf(r.Key, r.ID, tp.Partitions) == partition {
				batch, at = append(batch, r), append(at, i)
			}
		}
		if len(batch) == 0 {
			continue
		}
		for n, out := range f.Append(context.Background(), topic, partition, batch) {
			words[at[n]] = word(out)
		}
	}
	return words
}

func (f *fixture) want(got []string, want ...string) {
	f.t.Helper()
	if len(want) == 1 {
		want = slices.Repeat(want, len(got))
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("got %q, want %q", got, want)
	}
}

// wantLogged checks that the log holds exactly these ids of the topic, each partition's in this
// order.
func (f *fixture) wantLogged(topic string, ids ...string) {
	f.t.Helper()
	n := len(f.shared.create(topic, 1).partitions)
	total := 0
	for p := range n {
		var want []string
		for _, id := range ids {
			if r := record(id); eventlog.PartitionOf(r.Key, r.ID, n) == p {
				want = append(want, id)
			}
		}
		got := f.shared.ids(topic, p)
		total += len(got)
		if !slices.Equal(got, want) {
			f.t.Errorf("partition %d of %s holds %q, want %q", p, topic, got, want)
		}
	}
	if total != len(ids) {
		f.t.Errorf("%s holds %d events, want %d", topic, total, len(ids))
	}
}

// wantSpooled checks that this many events wait, and that they are those on the disk.
func (f *fixture) wantSpooled(events int) {
	f.t.Helper()
	var bytes int64
	stored := 0
	topics, err := f.store.Topics(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, tp := range topics {
		recs, err := f.store.Read(context.Background(), tp.Name, 0, 1, eventlog.Bounds{Events: 1 << 20})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, r := range recs {
			stored++
			bytes += int64(r.Size())
		}
	}
	if s := f.Stats(); s.Events != events || stored != events || s.Bytes != bytes {
		f.t.Errorf("stats %+v, and %d events of %d bytes on the disk; want %d events", s, stored, bytes, events)
	}
}

// drained waits until the spool is empty.
func (f *fixture) drained() {
	f.t.Helper()
	for range 600 {
		time.Sleep(100 * time.Millisecond) // in the bubble's time
		if s := f.Stats(); s.Events == 0 && !s.Away && !s.Draining {
			synctest.Wait()
			f.wantSpooled(0)
			return
		}
	}
	f.t.Fatalf("not drained within a minute: %+v", f.Stats())
}
