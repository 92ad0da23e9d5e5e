// Package figures holds what an event costs, in one file: allocations, bytes, keys and commands, which are the same on any machine
// at any load. Tests measure them and fail where one has become worse.
package figures

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

// file has the figures, by name.
const file = "test/figures/figures.json"

//go:embed figures.json
var text []byte

// A figure is a cost. It is worse where it is above Value by more than the part Within.
type figure struct {
	Value  float64 `json:"value"`
	Within float64 `json:"within,omitempty"`
}

// accept is the environment variable that puts what was measured into the file.
const accept = "FIGURES"

// Compare fails the test where a figure is worse than the file has it. Where it is much better it says so.
func Compare(t testing.TB, name string, measured float64) {
	t.Helper()
	var all map[string]figure
	require.NoError(t, json.Unmarshal(text, &all))
	want, known := all[name]
	verdict, ok := judge(name, want, known, measured)
	switch {
	case os.Getenv(accept) == "accept":
		require.NoError(t, write(name, measured, want.Within))
	case ok:
		t.Log(verdict)
	default:
		t.Errorf("%s\nto accept it: %s=accept go test -p 1 -count=1 -run '^%s$' PACKAGE, and say why in the commit", verdict, accept, t.Name())
	}
}

// judge compares a figure with what the file has.
func judge(name string, want figure, known bool, measured float64) (verdict string, ok bool) {
	if !known {
		return fmt.Sprintf("%s: %.4g, and %s has no such figure", name, measured, file), false
	}
	verdict = fmt.Sprintf("%s: %.4g, %+.1f %% from the %.4g of %s", name, measured, 100*(measured/want.Value-1), want.Value, file)
	if measured > want.Value*(1+want.Within) {
		return fmt.Sprintf("%s (%.3g %% are allowed)", verdict, 100*want.Within), false
	}
	return verdict, true
}

// write changes a figure in the checkout's file. Tests run in their package's folder.
func write(name string, measured, within float64) error {
	path := file
	for dir := ".."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			path = filepath.Join(dir, file)
			break
		}
		if abs, err := filepath.Abs(dir); err != nil || abs == filepath.Dir(abs) {
			return fmt.Errorf("%s is in no folder above", file)
		}
	}
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var all map[string]figure
	if err := json.Unmarshal(old, &all); err != nil {
		return err
	}
	if all[name].Within == 0 && within == 0 {
		within = usualWithin
	}
	all[name] = figure{Value: math.Ceil(measured*100) / 100, Within: within}
	out, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(out, '\n'), 0o644)
}

// usualWithin is for a figure that is new: other goroutines allocate a little, too.
const usualWithin = 0.05

// Allocations compares how often work allocates for an event, and how many bytes: the least of five times, since whatever else runs
// only adds. Prepare makes the work ready; work is for all events. With the race detector it does nothing.
func Allocations(t *testing.T, name string, events int, prepare func() (work func())) {
	t.Helper()
	if raceDetector {
		t.Skip("the race detector allocates, too")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	objects, bytes := math.Inf(1), math.Inf(1)
	for range 5 {
		work := prepare()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		work()
		runtime.ReadMemStats(&after)
		objects = min(objects, float64(after.Mallocs-before.Mallocs)/float64(events))
		bytes = min(bytes, float64(after.TotalAlloc-before.TotalAlloc)/float64(events))
	}
	Compare(t, name+": allocations of an event", objects)
	Compare(t, name+": bytes allocated for an event", bytes)
}
