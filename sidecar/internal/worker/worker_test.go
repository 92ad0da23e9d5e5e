package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// However often it is woken while it works, it works once more; one at a time; and not after it was
// stopped.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, runs := 0, 0
		w := &Worker{}
		w.Work = func() {
			if running++; running > 1 {
				t.Error("it works twice at a time")
			}
			time.Sleep(time.Second)
			running--
			runs++
		}
		wants := func(want int) {
			t.Helper()
			synctest.Wait()
			if runs != want {
				t.Errorf("it has worked %d times, want %d", runs, want)
			}
		}
		w.Wake()
		synctest.Wait()
		for range 5 {
			w.Wake()
		}
		time.Sleep(time.Minute)
		wants(2)
		w.Wake()
		synctest.Wait()
		w.Wake()
		w.Stop() // waits for the one under way
		wants(3)
		w.Wake()
		time.Sleep(time.Minute)
		wants(3)
	})
}
