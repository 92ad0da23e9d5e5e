package fleet

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

var toggles = flag.Int("toggles", 10, "how often a topic is paused and resumed to measure how long that takes to be in force")

// TestPutToEnforced measures how long after a PUT was sent a publisher at each of three sidecars
// finds the change in force: -toggles 50 -v
func TestPutToEnforced(t *testing.T) {
	f := startFleet(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var publishing sync.WaitGroup
	defer publishing.Wait()
	defer cancel()
	turned := make([]chan time.Time, len(f.sidecars)) // when the topic was found in its other state
	for i, m := range f.sidecars {
		turned[i] = make(chan time.Time, 1)
		publishing.Go(func() { m.watch(ctx, "toggled", turned[i]) })
	}
	await := func(i int) time.Time {
		t.Helper()
		select {
		case at := <-turned[i]:
			return at
		case <-time.After(patience):
			t.Fatalf("%s does not go by the change", f.sidecars[i].name)
			return time.Time{}
		}
	}
	var answered, each, last []time.Duration
	for n := range *toggles {
		// Changes in quick succession are sent together; these come one by one.
		pause.For(t.Context(), 80*time.Millisecond+rand.N(80*time.Millisecond))
		begin := time.Now()
		f.put(t, "toggled", []string{`{"paused":true}`, `{"paused":false}`}[n%2])
		answered = append(answered, time.Since(begin))
		slowest := time.Duration(0)
		for i := range f.sidecars {
			took := await(i).Sub(begin)
			each, slowest = append(each, took), max(slowest, took)
		}
		last = append(last, slowest)
	}
	for _, m := range []struct {
		what string
		took []time.Duration
	}{{"its answer", answered}, {"enforced at one sidecar", each}, {"enforced at all three", last}} {
		slices.Sort(m.took)
		n := len(m.took)
		t.Logf("PUT to %s: p50 %v, p99 %v, most %v of %d", m.what, m.took[n/2], m.took[n*99/100], m.took[n-1], n)
	}
}

// watch publishes in a loop, and tells each time that the topic has become paused, or is not paused
// any more.
func (m *member) watch(ctx context.Context, topic string, turned chan<- time.Time) {
	for paused := false; ctx.Err() == nil; {
		begin := time.Now()
		if now := isCode(m.publish(ctx, topic), wire.TopicPaused); now != paused && ctx.Err() == nil {
			paused = now
			select {
			case turned <- time.Now():
			case <-ctx.Done():
			}
		}
		if rest := time.Millisecond - time.Since(begin); rest > 0 {
			time.Sleep(rest) // a publisher takes its time, and the machine has few cores
		}
	}
}
