package simulation

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

var (
	manyFlag = flag.Int("many", 30, "how many schedules TestSchedules runs")
	seedFlag = flag.Uint64("seed", 0, "run the schedule of this seed alone, not several")
)

// TestSchedules runs schedules: whatever goes wrong in them, the promises are kept. They are the
// same each time, except for make soak, which gives it fresh seeds.
func TestSchedules(t *testing.T) {
	if *seedFlag != 0 {
		one(t, *seedFlag)
		return
	}
	_, fresh := testkit.SoakTime()
	testkit.Rounds(t, func(t *testing.T, seed uint64) {
		if !fresh {
			seed = 1
		}
		many := *manyFlag
		if testing.Short() {
			many = min(many, 10)
		}
		began, changes, revisions := time.Now(), 0, int64(0)
		for i := range many {
			res := one(t, seed<<16+uint64(i))
			changes, revisions = changes+res.changes, revisions+res.revision
			if t.Failed() {
				return
			}
		}
		t.Logf("%d schedules with %d changes and %d revisions in %v", many, changes, revisions, time.Since(began).Round(time.Millisecond))
	})
}

func one(t *testing.T, seed uint64) result {
	t.Helper()
	res := runPlan(t, newPlan(seed), nil)
	if len(res.problems) == 0 {
		return res
	}
	trace, err := os.CreateTemp("", "controlplanes-*")
	require.NoError(t, err)
	defer trace.Close()
	if _, err := trace.Write(res.trace); err != nil {
		t.Fatal(err)
	}
	t.Errorf("the schedule of seed %d breaks promises:\n%s\nall commands and logs: %s\nagain: go test "+
		"./controlplane/internal/simulation -run TestSchedules -seed %d",
		seed, strings.Join(res.problems[:min(len(res.problems), 10)], "\n"), trace.Name(), seed)
	return res
}
