package systemtest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/sidecartest"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// TestRedriveKilledHalfWay makes 2,000 dead letters, redrives them, kills the
// sidecar half-way and redrives the rest: none is lost, none is in the list
// twice, and the list is empty once all are acked. Of each key they come in log
// order.
func TestRedriveKilledHalfWay(t *testing.T) {
	t.Parallel()
	const n, keys = 2000, 50
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "policies.yaml"), policies)
	start := func() (*sidecartest.Process, *admin.HTTP) {
		p := sidecartest.Start(t, filepath.Join(dir, "data"), "--policies", file)
		return p, &admin.HTTP{AppURL: p.URL()}
	}
	p, h := start()
	for from := 0; from < n; from += 500 {
		events := make([]wire.Event, 500)
		for i := range events {
			events[i] = wire.Event{Topic: topic, ID: fmt.Sprintf("e%04d", from+i), Key: fmt.Sprint("k", (from+i)%keys), Payload: []byte("1")}
		}
		if _, err := h.PublishBatch(t.Context(), topic, events); err != nil {
			t.Fatal(err)
		}
	}
	pull := admin.PullQuery{Topic: topic, Group: groupName, Max: 1000, Wait: time.Second, Options: wire.SubscribeOptions{From: wire.FromEarliest}}
	for dead := 0; dead < n; {
		ds, err := h.Pull(t.Context(), pull)
		if err != nil {
			t.Fatal(err)
		}
		if len(ds) > 0 {
			if _, err := h.Nack(t.Context(), topic, groupName, sluice.Nack{DeadLetter: true, Reason: "poison"}, leases(ds)...); err != nil {
				t.Fatal(err)
			}
		}
		dead += len(ds)
	}
	wantDead(t, h, n)

	var mu sync.Mutex
	acked, last := map[string]int{}, map[string]uint64{}
	consume := func(ctx context.Context, h *admin.HTTP) {
		for ctx.Err() == nil {
			ds, err := h.Pull(ctx, pull)
			if err != nil {
				return
			}
			if len(ds) == 0 {
				continue
			}
			for _, d := range ds {
				e := &d.Event
				if redriven, _ := e.Headers.Get(wire.HeaderRedriven); redriven == "" {
					t.Errorf("%s came though nobody redrove it", e.ID)
				}
				mu.Lock()
				if d.Attempt == 1 && e.Seq < last[e.Key] { // later attempts are of what a kill took back
					t.Errorf("%s of key %s came after seq %d", e.ID, e.Key, last[e.Key])
				}
				last[e.Key] = max(last[e.Key], e.Seq)
				mu.Unlock()
			}
			results, err := h.Ack(context.WithoutCancel(ctx), topic, groupName, leases(ds)...)
			if err != nil {
				return
			}
			mu.Lock()
			for i, bad := range results {
				if bad == nil {
					acked[ds[i].Event.ID]++
				}
			}
			mu.Unlock()
		}
	}
	run := func(h *admin.HTTP, until func(done int) bool) error {
		ctx, cancel := context.WithCancel(t.Context())
		var consuming sync.WaitGroup
		consuming.Go(func() { consume(ctx, h) })
		_, err := h.Redrive(t.Context(), topic, admin.DeadLetterSelection{Group: groupName, Rate: 2000}, func(done, _ int) {
			if until(done) {
				p.Kill()
			}
		})
		for deadline := time.Now().Add(settleTimeout); err == nil; waitFor(t, 20*time.Millisecond) {
			page, failed := h.DeadLetters(t.Context(), topic, admin.DeadLetterQuery{Limit: 1})
			if failed != nil || page.Total == 0 || time.Now().After(deadline) {
				err = failed
				break
			}
		}
		cancel()
		consuming.Wait()
		return err
	}
	killed := false
	err := run(h, func(done int) bool {
		is := done >= n/2 && !killed
		killed = killed || is
		return is
	})
	if !killed || err == nil {
		t.Fatalf("the redrive was not broken off: %v", err)
	}
	p, h = start()
	left := listed(t, h)
	for id := range left {
		if acked[id] > 0 {
			t.Errorf("%s is in the list, and its ack was answered", id)
		}
	}
	if err := run(h, func(int) bool { return false }); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	wantDead(t, h, 0)
	for i := range n {
		id := fmt.Sprintf("e%04d", i)
		if acked[id] == 0 && left[id] {
			t.Errorf("%s was neither acked nor is it in the list", id)
		}
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func leases(ds []wire.Delivery) []string {
	out := make([]string, len(ds))
	for i := range ds {
		out[i] = ds[i].Lease
	}
	return out
}

// listed are the events with a dead letter; none may have two.
func listed(t *testing.T, h *admin.HTTP) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for d, err := range h.AllDeadLetters(t.Context(), topic, admin.DeadLetterQuery{Limit: 1000}) {
		if err != nil {
			t.Fatal(err)
		}
		if found[d.ID] {
			t.Errorf("%s is in the list twice", d.ID)
		}
		found[d.ID] = true
	}
	return found
}

func wantDead(t *testing.T, h *admin.HTTP, n int) {
	t.Helper()
	if got := len(listed(t, h)); got != n {
		t.Errorf("%d dead letters; want %d", got, n)
	}
}
