package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// kills of one round
const kills = 3

// writer puts one policy again and again, each time with another burst.
type writer struct {
	name     string
	next     int           // the burst to put next
	answered map[int64]int // the burst of each version that was answered
	faults   []error
}

// TestAnsweredChangesSurviveKills kills the control plane at random moments while clients put
// policies as fast as they can.
func TestAnsweredChangesSurviveKills(t *testing.T) {
	t.Parallel()
	testkit.Rounds(t, putWhileKilled)
}

func putWhileKilled(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	p := startPlane(t)
	p.put(t, "*", unlimited)
	m := startSidecar(t, "s", "--control-plane", p.XDS())
	var writers []*writer
	for i := range 3 {
		writers = append(writers, &writer{name: fmt.Sprint("w", i), next: 1, answered: map[int64]int{}})
	}
	for range kills {
		ctx, cancel := context.WithCancel(t.Context())
		var writing sync.WaitGroup
		for _, w := range writers {
			writing.Go(func() { w.write(ctx, p.api) })
		}
		pause.For(t.Context(), time.Duration(50+random.IntN(350))*time.Millisecond)
		p.Kill()
		cancel()
		writing.Wait()
		p.start(t)
	}
	list, err := p.api.Policies(t.Context())
	require.NoError(t, err)
	changes := int64(1) // that of *
	for _, w := range writers {
		changes += w.check(t, p.api)
	}
	if list.Revision != changes {
		t.Errorf("revision %d after %d changes", list.Revision, changes)
	}
	for _, w := range writers {
		want := w.next
		p.put(t, w.name, w.document())
		eventually(t, "the sidecar has the last of "+w.name, func() bool { return m.burst(t, w.name) == want })
	}
}

func (w *writer) document() string {
	return fmt.Sprintf(`{"publish":{"rate":100,"burst":%d}}`, w.next)
}

// write puts until the control plane is gone.
func (w *writer) write(ctx context.Context, api *admin.ControlPlane) {
	for {
		policy, err := api.PutPolicy(ctx, w.name, json.RawMessage(w.document()), admin.Condition{})
		if _, refused := errors.AsType[*wire.Error](err); refused {
			w.faults = append(w.faults, err)
		}
		if err == nil {
			w.answered[policy.Version] = w.next
		}
		w.next++ // also if its outcome is not known
		if err != nil {
			return
		}
	}
}

// check checks that every answered version is there, without a gap between versions. It returns how
// many there are.
func (w *writer) check(t *testing.T, api *admin.ControlPlane) int64 {
	t.Helper()
	for _, err := range w.faults {
		t.Errorf("%s: %v", w.name, err)
	}
	versions, err := api.PolicyHistory(t.Context(), w.name)
	require.NoError(t, err)
	t.Logf("%s: %d versions, %d of them answered", w.name, len(versions), len(w.answered))
	if len(versions) < len(w.answered) || len(versions) > len(w.answered)+kills {
		t.Errorf("%s has %d versions; %d were answered, and %d may have been", w.name, len(versions), len(w.answered), kills)
	}
	newest := 0
	for i, v := range versions {
		if want := int64(len(versions) - i); v.Version != want {
			t.Fatalf("%s: version %d where %d is due", w.name, v.Version, want)
		}
		burst := burstIn(t, v.Policy)
		if want, ok := w.answered[v.Version]; ok && burst != want {
			t.Errorf("%s: version %d has burst %d; %d was answered", w.name, v.Version, burst, want)
		}
		newest = max(newest, burst)
	}
	now, err := api.Policy(t.Context(), w.name)
	require.NoError(t, err)
	if now.Version != int64(len(versions)) || burstIn(t, &now) != newest {
		t.Errorf("%s is at version %d with burst %d; want %d with %d", w.name, now.Version, burstIn(t, &now), len(versions), newest)
	}
	return now.Version
}

func burstIn(t *testing.T, p *admin.Policy) int {
	t.Helper()
	var document struct{ Publish struct{ Burst int } }
	if p == nil {
		t.Fatal("a version that is a deletion")
	}
	require.NoError(t, json.Unmarshal(p.Document, &document))
	return document.Publish.Burst
}
