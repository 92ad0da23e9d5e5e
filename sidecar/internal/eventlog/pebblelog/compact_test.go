package pebblelog

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// However much of a compaction a power cut takes back: every key still has the value that it had
// last, and the head is where it was.
func TestCompactionSurvivesACrash(t *testing.T) { testkit.Rounds(t, crashWhileCompacting) }

func crashWhileCompacting(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	const keys, rounds = 5, 12
	disk := vfs.NewCrashableMem()
	l := mustOpen(t, Options{Dir: "data", FS: disk})
	defer l.Close()
	ensure(t, l, "t", 1)
	want := map[string]string{}
	for round := range rounds {
		var batch []*eventlog.Record
		for k := range keys {
			key, value := fmt.Sprint("k", k), fmt.Sprint(round)
			if (round+k)%4 == 3 {
				value = "null"
			}
			batch = append(batch, eventlogtest.Event(fmt.Sprint(round, "-", k), eventlogtest.Keyed(key), eventlogtest.Payload(value)))
			if want[key] = value; value == "null" {
				delete(want, key)
			}
		}
		for _, o := range l.Append(t.Context(), "t", 0, batch) {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
		}
		c := eventlog.Compaction{Now: batch[0].AcceptedAt, TombstonesBefore: batch[0].AcceptedAt + 1, Limit: 7}
		for from := uint64(1); ; {
			next, _, err := l.Compact(t.Context(), "t", 0, from, c)
			require.NoError(t, err)
			if next == from {
				break
			}
			from = next
			for _, kept := range []int{0, 50, 100} {
				after := mustOpen(t, Options{Dir: "data", FS: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng})})
				checkValues(t, after, want, uint64(keys*(round+1)))
				after.Close()
			}
		}
	}
}

// checkValues wants each key's last event to say this, and none or a tombstone where it says
// nothing.
func checkValues(t *testing.T, l *Log, want map[string]string, head uint64) {
	t.Helper()
	events, err := l.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 1000})
	require.NoError(t, err)
	got := map[string]string{}
	for _, e := range events {
		if got[e.Key] = string(e.Payload); e.Tombstone() {
			delete(got, e.Key)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a crash the values are %v; want %v", got, want)
	}
	if e, err := l.Extents(t.Context(), "t"); err != nil || e[0].Head != head {
		t.Errorf("after a crash the extent is %+v, %v; the head was %d", e, err, head)
	}
}
