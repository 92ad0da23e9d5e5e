package pebblelog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/damage"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestDamage changes one file of a data folder in one way, again and again, and starts on that. The log has everything
// that was acknowledged, or is refused, or fails the reads of what it has not: it never loses anything in silence.
func TestDamage(t *testing.T) {
	testkit.Rounds(t, func(t *testing.T, seed uint64) {
		for _, clean := range []bool{false, true} {
			t.Run(fmt.Sprintf("closed=%v", clean), func(t *testing.T) { damageFolder(t, seed, clean) })
		}
	})
}

// damageFolder fills a folder, and damages each of its files in each way.
func damageFolder(t *testing.T, seed uint64, clean bool) {
	rng := rand.New(rand.NewPCG(seed, 1))
	disk := vfs.NewCrashableMem()
	l := mustOpen(t, Options{Dir: "data", FS: disk, segmentSize: 8 << 10})
	p := promises{events: map[string]*eventlog.Record{}}
	p.fill(t, l, rng, "a")
	require.NoError(t, l.db.Flush())
	p.fill(t, l, rng, "b")
	older := contents(t, disk, "data")
	if rng.IntN(2) == 0 {
		require.NoError(t, l.db.Flush())
	}
	p.fill(t, l, rng, "c")
	after := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
	require.NoError(t, l.Close())
	if clean {
		after = disk
	}
	now := contents(t, after, "data")
	counts := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		for _, kind := range slices.Sorted(maps.Keys(damage.Kinds)) {
			then, ok := damage.Kinds[kind](rng, now[name], older[name])
			if !ok || strings.HasSuffix(name, lockFile) {
				continue
			}
			damaged := after.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
			replace(t, damaged, name, then)
			outcome, detail := p.verdict(t, damaged)
			counts[outcome]++
			if outcome == "silent" {
				t.Errorf("%s, %s: %s", name, kind, detail)
			} else if testing.Verbose() {
				t.Logf("%-45s %-12s %s %.200s", name, kind, outcome, detail)
			}
		}
	}
	t.Logf("%v", counts)
}

// contents are a folder's files by path.
func contents(t *testing.T, disk vfs.FS, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	names, err := disk.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		path := disk.PathJoin(dir, name)
		info, err := disk.Stat(path)
		require.NoError(t, err)
		if info.IsDir() {
			maps.Copy(files, contents(t, disk, path))
			continue
		}
		f, err := disk.Open(path)
		require.NoError(t, err)
		text, err := io.ReadAll(f)
		require.NoError(t, errors.Join(err, f.Close()))
		files[path] = append([]byte{}, text...)
	}
	return files
}

func replace(t *testing.T, disk vfs.FS, name string, then []byte) {
	t.Helper()
	require.NoError(t, disk.Remove(name))
	if then == nil {
		return
	}
	f, err := disk.Create(name, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = f.Write(then)
	require.NoError(t, errors.Join(err, f.Sync(), f.Close()))
}

// promises is what a log has acknowledged.
type promises struct {
	events    map[string]*eventlog.Record
	time      int64 // of the last event with a timed id
	scheduled []string
	marks     []string
	cursor    uint64
	text      string
}

// next is the time of further events.
func (p *promises) next() int64 {
	p.time = max(p.time, 1_723_140_000_000) + 1
	return p.time
}

// timed gives events ids that a sidecar made: those whose partition is right need no entry.
func timed(batch []*eventlog.Record, ts int64) {
	for _, r := range batch {
		r.Key, r.TS, r.AcceptedAt, r.ID, r.FreshID = "", ts, ts, eventlog.NewTimedID(ts), true
	}
}

var damageGroup = eventlog.GroupPartition{Topic: "t", Group: "g"}

// fill publishes to two topics, moves a group, marks, schedules, erases and notes.
func (p *promises) fill(t *testing.T, l *Log, rng *rand.Rand, prefix string) {
	t.Helper()
	for _, topic := range []string{"t", "u"} {
		ensure(t, l, topic, 2)
		for n := range 40 {
			partition := rng.IntN(2)
			batch := eventlogtest.Events(fmt.Sprintf("%s-%s-%d", prefix, topic, n), 1+rng.IntN(4), eventlogtest.Keyed(fmt.Sprint(n%5)))
			if topic == "u" {
				timed(batch, p.next())
			}
			for i, o := range l.Append(t.Context(), topic, partition, batch) {
				require.NoError(t, o.Err)
				p.events[topic+"/"+batch[i].ID] = batch[i]
			}
		}
	}
	later := eventlogtest.Event(prefix + "-later")
	later.DeliverAt = 1 << 50
	require.NoError(t, l.Append(t.Context(), "t", 0, []*eventlog.Record{later})[0].Err)
	p.scheduled = append(p.scheduled, later.ID)
	if p.cursor == 0 {
		require.NoError(t, l.TakeEpochs(t.Context(), []eventlog.Epoch{{GroupPartition: damageGroup, Number: 1, Owner: "n"}})[0])
	}
	p.cursor += 10
	e := eventlog.Epoch{GroupPartition: damageGroup, Number: 1, Owner: "n", Progress: eventlog.Progress{Cursor: p.cursor}}
	mark := eventlog.Mark{Topic: "t", Group: "g", ID: prefix, ExpiresAt: 1 << 60}
	require.NoError(t, l.SaveEpochs(t.Context(), []eventlog.Epoch{e}, []eventlog.Mark{mark}))
	require.NoError(t, l.Sync(t.Context()))
	p.marks = append(p.marks, prefix)
	p.text = prefix
	require.NoError(t, l.SetText("name", []byte(prefix)))
}

// verdict says what a start on a folder makes of it: clean, refused, partial (some reads fail) or silent.
func (p *promises) verdict(t *testing.T, disk vfs.FS) (outcome, detail string) {
	l, err := Open(Options{Dir: "data", FS: disk, segmentSize: 8 << 10, Logger: quiet})
	if err != nil {
		return "refused", err.Error()
	}
	defer l.Close()
	return p.judge(t, l)
}

// judge is verdict of a log that has started.
func (p *promises) judge(t *testing.T, l *Log) (outcome, detail string) {
	var failures []string
	silent := func(format string, args ...any) {
		outcome, detail = "silent", detail+fmt.Sprintf(format, args...)+"; "
	}
	// check notes a failed read, and reports whether there is an answer to look at.
	check := func(err error) bool {
		var damage *eventlog.DamageError
		if err != nil && (!errors.Is(err, eventlog.ErrUnavailable) || !errors.As(err, &damage)) {
			silent("%v", err)
		} else if err != nil {
			failures = append(failures, err.Error())
		}
		return err == nil
	}
	for _, topic := range []string{"t", "u"} {
		p.verifyTopic(t, l, topic, check, silent)
	}
	list, err := l.ListScheduled(t.Context(), "t", nil, 100)
	if check(err) && len(list) != len(p.scheduled) {
		silent("%d scheduled", len(list))
	}
	marked, err := l.Marked(t.Context(), "t", "g", p.marks, 1)
	if check(err) && slices.Contains(marked, false) {
		silent("marks %v", marked)
	}
	epochs, err := l.LatestEpochs(t.Context(), "t", "g")
	if check(err) && (len(epochs) != 1 || epochs[0].Progress.Cursor != p.cursor) {
		silent("epochs %+v", epochs)
	}
	text, err := l.Text("name")
	if check(err) && string(text) != p.text {
		silent("text %q", text)
	}
	switch {
	case outcome == "silent":
		return outcome, detail
	case len(failures) > 0:
		return "partial", failures[0]
	}
	return "clean", ""
}

// verifyTopic reads a topic in every way.
func (p *promises) verifyTopic(t *testing.T, l *Log, topic string, check func(error) bool, silent func(string, ...any)) {
	seen := map[string]bool{}
	whole := true
	for partition := range 2 {
		for next := uint64(1); ; {
			events, err := l.Read(t.Context(), topic, partition, next, everything)
			whole = check(err) && whole
			p.compare(topic, events, seen, silent)
			if len(events) == 0 {
				break
			}
			next = events[len(events)-1].Seq + 1
		}
	}
	if n := p.count(topic); whole && len(seen) != n {
		silent("%d of %d events of %s are read", len(seen), n, topic)
	}
	clear(seen)
	events, err := l.Scan(t.Context(), topic, eventlog.ScanQuery{}, everything)
	p.compare(topic, events, seen, silent)
	if n := p.count(topic); check(err) && len(seen) != n {
		silent("%d of %d events of %s are scanned", len(seen), n, topic)
	}
	for name, want := range p.events {
		if want.Topic != topic && !strings.HasPrefix(name, topic+"/") {
			continue
		}
		r, err := l.Lookup(t.Context(), topic, want.ID)
		if check(err) {
			p.compare(topic, []*eventlog.Record{r}, seen, silent)
		}
	}
}

func (p *promises) count(topic string) (n int) {
	for name := range p.events {
		if strings.HasPrefix(name, topic+"/") {
			n++
		}
	}
	return n
}

// compare wants events as they were published.
func (p *promises) compare(topic string, events []*eventlog.Record, seen map[string]bool, silent func(string, ...any)) {
	for _, r := range events {
		want := p.events[topic+"/"+r.ID]
		if want == nil {
			silent("%s has %q, which was never published", topic, r.ID)
			continue
		}
		seen[r.ID] = true
		got := *r
		got.Topic = want.Topic
		got.Payload = append([]byte{}, got.Payload...)
		if !reflect.DeepEqual(&got, want) && (got.Seq != want.Seq || !bytes.Equal(got.Payload, want.Payload)) {
			silent("%s/%q has changed", topic, r.ID)
		}
	}
}
