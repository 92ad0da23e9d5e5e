package bubbletest

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/mongomodel"
)

// A call of Compact looks at its page, at as many events behind it as tell which are superseded,
// and again at each event that it removes or reads as a tombstone. Nothing is sorted in memory. The
// call reads the events behind the page in few commands: one for each time eight times more.
func TestCompactionCostsWhatItLooksAt(t *testing.T) {
	const total, page = 10_000, 1000
	for name, key := range map[string]func(i int) int{
		"every key once":                func(i int) int { return i },
		"each key twice, far apart":     func(i int) int { return i % (total / 2) },
		"each key twice, side by side":  func(i int) int { return i / 2 },
		"few keys":                      func(i int) int { return i % 100 },
		"one key among those that stay": func(i int) int { return i * (i % 2) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true})
				t.Cleanup(set.Close)
				l, commands := counted(t, set)
				withTopic(t, l)
				list, seqs, last := eventlogtest.Events("e", total), make([]uint64, total), map[string]bool{}
				for i, e := range list {
					e.Key, seqs[i] = fmt.Sprintf("k-%d", key(i)), uint64(i)+1
					last[e.Key] = true
				}
				stored(t, l, list, seqs...)
				sweep(t, l, eventlog.Retention{}, firstTS, 0)
				gone := 0
				for from := uint64(1); from <= total; {
					before := set.Work()
					commands.Store(0)
					next, removed, err := l.Compact(t.Context(), "t", 0, from, eventlog.Compaction{TombstonesBefore: math.MaxInt64, Limit: page})
					if err != nil || next != from+page {
						t.Fatalf("from %d: next %d, %v", from, next, err)
					}
					synctest.Wait()
					work := set.Work()
					documents, sorted, n := work.Documents-before.Documents, work.Sorted-before.Sorted, commands.Load()
					if documents > 3*page+3 || sorted > 0 || n > 10 {
						t.Errorf("from %d, %d removed: %d documents, %d sorted, %d commands", from, removed, documents, sorted, n)
					}
					from, gone = next, gone+removed
				}
				if gone != total-len(last) {
					t.Errorf("%d events are gone; want %d", gone, total-len(last))
				}
			})
		})
	}
}
