package pebblelog

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// TestBackup takes a backup of a log that is written to, and restores it: a new store with everything that was
// acknowledged before.
func TestBackup(t *testing.T) {
	l := mustOpen(t, Options{Dir: t.TempDir(), segmentSize: 8 << 10})
	defer l.Close()
	p := promises{events: map[string]*eventlog.Record{}}
	p.fill(t, l, rand.New(rand.NewPCG(1, 1)), "a")
	require.NoError(t, l.db.Flush())
	p.fill(t, l, rand.New(rand.NewPCG(1, 2)), "b")
	var backup bytes.Buffer
	require.NoError(t, l.Backup(t.Context(), &backup))
	whole := backup.Bytes()

	dir := filepath.Join(t.TempDir(), "restored")
	require.NoError(t, Restore(dir, bytes.NewReader(whole)))
	restored := mustOpen(t, Options{Dir: dir})
	if restored.StoreID() == l.StoreID() {
		t.Error("the restored store has the id of the other")
	}
	if outcome, detail := p.judge(t, restored); outcome != "clean" {
		t.Errorf("%s: %s", outcome, detail)
	}
	require.NoError(t, restored.Close())
	f, err := Verify(t.Context(), Options{Dir: dir, Logger: quiet}, false)
	if err != nil || len(f.Damage) > 0 || f.Events != len(p.events) {
		t.Errorf("Verify: %+v, %v; want %d events", f, err, len(p.events))
	}

	if err := Restore(dir, bytes.NewReader(whole)); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a folder that is not empty: %v", err)
	}
	cut := filepath.Join(t.TempDir(), "cut")
	if err := Restore(cut, bytes.NewReader(whole[:len(whole)*2/3])); err == nil {
		t.Error("half a backup is restored")
	}
	if _, err := Open(Options{Dir: cut, Logger: quiet}); err == nil {
		t.Error("half a backup is opened")
	}
}

// TestVerifyDropsWhatIsDamaged: the events of a damaged page are named, and dropped on request; then everything reads
// past them, and their seqs are not given again.
func TestVerifyDropsWhatIsDamaged(t *testing.T) {
	o := Options{Dir: t.TempDir(), segmentSize: 8 << 10, Logger: quiet}
	l := mustOpen(t, o)
	p := promises{events: map[string]*eventlog.Record{}}
	p.fill(t, l, rand.New(rand.NewPCG(1, 1)), "a")
	require.NoError(t, l.Close())
	path := filepath.Join(o.Dir, "journal", "00000000000000000000.log")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	clear(text[3000:3500])
	require.NoError(t, os.WriteFile(path, text, 0o600))

	f, err := Verify(t.Context(), o, false)
	if err != nil || len(f.Damage) == 0 || len(f.Lost) == 0 || !strings.Contains(f.Damage[0], path) {
		t.Fatalf("Verify: %+v, %v", f, err)
	}
	lost := 0
	for _, x := range f.Lost {
		lost += x.Events
	}
	if f.Events+lost != len(p.events) {
		t.Errorf("%d events are there and %d lost; %d were published", f.Events, lost, len(p.events))
	}
	_, err = Verify(t.Context(), o, true)
	require.NoError(t, err)
	if f, err := Verify(t.Context(), o, false); err != nil || len(f.Damage) > 0 {
		t.Errorf("after that: %+v, %v", f, err)
	}
	l = mustOpen(t, o)
	defer l.Close()
	n := 0
	for _, topic := range []string{"t", "u"} {
		events, err := l.Scan(t.Context(), topic, eventlog.ScanQuery{}, everything)
		require.NoError(t, err)
		n += len(events)
		read := 0
		for partition := range 2 {
			events, err := l.Read(t.Context(), topic, partition, 1, everything)
			require.NoError(t, err)
			read += len(events)
		}
		if read != len(events) {
			t.Errorf("%s: %d events are scanned and %d read", topic, len(events), read)
		}
	}
	if n != f.Events {
		t.Errorf("%d events are left; want %d", n, f.Events)
	}
}
