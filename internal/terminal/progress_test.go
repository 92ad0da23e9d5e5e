package terminal

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/test/require"
)

const clear = "\r\x1b[K"

func TestNothingIsShownOffATerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer file.Close()
	var buffer bytes.Buffer
	for _, w := range []interface{ Write([]byte) (int, error) }{file, &buffer} {
		if Is(w) {
			t.Errorf("%T is taken for a terminal", w)
		}
		progress := NewProgress(w, "publishing", 10)
		progress.Add(10)
		progress.Finish()
	}
	if info, err := file.Stat(); err != nil || info.Size() != 0 || buffer.Len() != 0 {
		t.Errorf("something was written: %v, %q", err, &buffer)
	}
}

func TestRedrawnAtMostTenTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		progress := newProgress(&screen, "publishing", 0)
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for range 1000 {
					time.Sleep(time.Millisecond) // on the bubble's clock: no time passes
					progress.Add(1)
				}
			})
		}
		workers.Wait()
		if draws := strings.Count(screen.String(), clear); draws < 5 || draws > 11 {
			t.Errorf("%d draws in a second, want about 10", draws)
		}
		progress.Finish()
		if !strings.HasSuffix(screen.String(), clear) {
			t.Errorf("the line was left on the screen: %q", screen.String())
		}
	})
}

func TestShortTasksShowNoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		progress := newProgress(&screen, "publishing", 2)
		progress.Add(1)
		time.Sleep(redrawEvery - 1)
		progress.Add(1)
		progress.Finish()
		if got := screen.String(); got != clear {
			t.Errorf("screen = %q, want at most a clearing", got)
		}
	})
}

func TestLine(t *testing.T) {
	for name, test := range map[string]struct {
		progress *Progress
		elapsed  time.Duration
		columns  int
		want     string
	}{
		"known total": {&Progress{label: "publishing", total: 30_000, done: 15_000}, 3 * time.Second, 72,
			"publishing [==========>         ]  50%  15,000/30,000  5,000/s  ETA 0:03"},
		"too narrow for a bar": {&Progress{label: "publishing", total: 30_000, done: 15_000}, 3 * time.Second, 50,
			"publishing   50%  15,000/30,000  5,000/s  ETA 0:03"},
		"just begun": {&Progress{label: "publishing", total: 1000}, 0, 70,
			"publishing [>                           ]   0%  0/1,000  0/s  ETA -:--"},
		"done": {&Progress{label: "x", total: 10, done: 10}, time.Second, 45,
			"x [=============] 100%  10/10  10/s  ETA 0:00"},
		"more than announced": {&Progress{label: "x", total: 10, done: 20}, time.Second, 45,
			"x [=============] 100%  20/10  20/s  ETA 0:00"},
		"unknown total": {&Progress{label: "exporting", done: 1_234_567}, 3661 * time.Second, 80,
			"exporting  1,234,567  337/s  1:01:01"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.progress.line(test.elapsed, test.columns); got != test.want {
				t.Errorf("line\n got %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestLineNeverWraps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		progress := Progress{
			label: "publishing",
			total: rapid.Int64Min(0).Draw(t, "total"),
			done:  rapid.Int64Min(0).Draw(t, "done"),
		}
		elapsed := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "elapsed"))
		columns := rapid.IntRange(0, 200).Draw(t, "columns")
		if line := progress.line(elapsed, columns); len(line) > columns || strings.ContainsAny(line, "\r\n") {
			t.Fatalf("%d columns: %q", columns, line)
		}
	})
}
