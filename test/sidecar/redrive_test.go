package sidecar

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestRedriveKilledHalfWay makes 2,000 dead letters, redrives them, kills the sidecar half-way and
// redrives the rest. None is lost, none is in the list twice, and the list is empty once all are
// acked. The events of each key come in log order.
func TestRedriveKilledHalfWay(t *testing.T) {
	t.Parallel()
	const n, keys = 2000, 50
	dir := t.TempDir()
	file := testkit.Write(t, filepath.Join(dir, "policies.yaml"), policies)
	start := func() (*testkit.Sidecar, *admin.HTTP) {
		p := testkit.StartSidecar(t, filepath.Join(dir, "data"), "--policies", file)
		return p, &admin.HTTP{AppURL: p.URL()}
	}
	p, h := start()
	makeDead(t, h, n, keys)
	var mu sync.Mutex
	acked, last := map[string]int{}, map[string]uint64{}
	unanswered := map[string]bool{} // acks that the kill left without an answer, which may count
	consume := func(ctx context.Context, h *admin.HTTP) {
		for ctx.Err() == nil {
			ds, err := h.Pull(ctx, pullAll)
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
				if d.Attempt == 1 && e.Seq < last[e.Key] { // later attempts are of events that the kill took back
					t.Errorf("%s of key %s came after seq %d", e.ID, e.Key, last[e.Key])
				}
				last[e.Key] = max(last[e.Key], e.Seq)
				mu.Unlock()
			}
			results, err := h.Ack(context.WithoutCancel(ctx), topic, groupName, leases(ds)...)
			mu.Lock()
			if err != nil {
				for _, d := range ds {
					unanswered[d.Event.ID] = true
				}
				mu.Unlock()
				return
			}
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
		for deadline := time.Now().Add(settleTimeout); err == nil; pause.For(t.Context(), 20*time.Millisecond) {
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
		if acked[id] == 0 && !unanswered[id] && left[id] {
			t.Errorf("%s was neither acked nor is it in the list", id)
		}
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// pullAll pulls for the group from the topic's first event on.
var pullAll = admin.PullQuery{Topic: topic, Group: groupName, Max: 1000, Wait: time.Second,
	Options: wire.SubscribeOptions{From: wire.FromEarliest}}

// makeDead publishes events e0000, e0001 and so on, and makes all of them dead letters of the
// group.
func makeDead(t *testing.T, h *admin.HTTP, n, keys int) {
	t.Helper()
	for from := 0; from < n; from += 500 {
		events := make([]wire.Event, 500)
		for i := range events {
			events[i] = wire.Event{Topic: topic, ID: fmt.Sprintf("e%04d", from+i), Key: fmt.Sprint("k", (from+i)%keys), Payload: []byte("1")}
		}
		if _, err := h.PublishBatch(t.Context(), topic, events); err != nil {
			t.Fatal(err)
		}
	}
	for dead := 0; dead < n; {
		ds, err := h.Pull(t.Context(), pullAll)
		require.NoError(t, err)
		if len(ds) > 0 {
			if _, err := h.Nack(t.Context(), topic, groupName, sluice.Nack{DeadLetter: true, Reason: "poison"}, leases(ds)...); err != nil {
				t.Fatal(err)
			}
		}
		dead += len(ds)
	}
	wantDead(t, h, n)
}

// TestRedriveWhileTheGroupWorks redrives dead letters at 1,000 a second to a group that is given
// new events meanwhile. Each dead letter comes to that group once, in the order of its key among
// the redriven, and to no other group. New events come as well, and no more are in flight than may
// be.
func TestRedriveWhileTheGroupWorks(t *testing.T) {
	t.Parallel()
	const n, keys, rate, window = 3000, 50, 1000, 40
	dir := t.TempDir()
	patient := strings.Replace(policies, "ack_timeout: 2s", "ack_timeout: 5m", 1) // nothing is delivered twice on a slow machine
	p := testkit.StartSidecar(t, filepath.Join(dir, "data"), "--policies", testkit.Write(t, filepath.Join(dir, "policies.yaml"), patient))
	h := &admin.HTTP{AppURL: p.URL()}
	makeDead(t, h, n, keys)
	client, err := sluice.Dial(t.Context(), p.URL())
	require.NoError(t, err)
	defer client.Close()

	type seen struct{ redriven, fresh map[string]int }
	var mu sync.Mutex
	groups := map[string]*seen{groupName: {map[string]int{}, map[string]int{}}, "audit": {map[string]int{}, map[string]int{}}}
	last := map[string]uint64{}
	inFlight := 0
	subscribe := func(group string, opts ...option.Subscribe) {
		t.Helper()
		_, err := client.Subscribe(t.Context(), topic, group, func(_ context.Context, m *sluice.Message) error {
			mu.Lock()
			defer mu.Unlock()
			_, redriven := m.Event.Headers.Get(wire.HeaderRedriven)
			if !redriven {
				groups[group].fresh[m.Event.ID]++
				return nil
			}
			groups[group].redriven[m.Event.ID]++
			if m.Attempt != 1 || m.Event.Seq < last[m.Event.Key] {
				t.Errorf("%s of key %s, seq %d, attempt %d, came after seq %d", m.Event.ID, m.Event.Key, m.Event.Seq, m.Attempt, last[m.Event.Key])
			}
			last[m.Event.Key] = m.Event.Seq
			return nil
		}, append(opts, option.FromEarliest(), option.Concurrency(8))...)
		require.NoError(t, err)
	}
	subscribe(groupName, option.MaxInflight(window))
	subscribe("audit")
	ctx, cancel := context.WithCancel(t.Context())
	fresh := make(chan int)
	go func() {
		count := 0
		for ; ctx.Err() == nil; pause.For(t.Context(), 5*time.Millisecond) {
			if _, err := client.Publish(t.Context(), &sluice.Event{Topic: topic, ID: fmt.Sprint("new-", count), Key: fmt.Sprint("k", count%keys),
				Payload: []byte("1")}); err != nil {
				t.Error(err)
				break
			}
			count++
		}
		fresh <- count
	}()
	began := time.Now()
	of, err := h.Redrive(t.Context(), topic, admin.DeadLetterSelection{Group: groupName, Rate: rate}, func(int, int) {
		info, err := h.GroupInfo(t.Context(), topic, groupName)
		if err != nil {
			t.Error(err)
		}
		inFlight = max(inFlight, info.Inflight)
	})
	if err != nil || of != n {
		t.Fatalf("%d were redriven, %v", of, err)
	}
	took := time.Since(began)
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(settleTimeout); !done(); pause.For(t.Context(), 20*time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("waited in vain until ", what)
			}
		}
	}
	until("all are acked", func() bool {
		page, err := h.DeadLetters(t.Context(), topic, admin.DeadLetterQuery{Limit: 1})
		return err == nil && page.Total == 0
	})
	acked := time.Since(began)
	cancel()
	published := <-fresh
	for group := range groups {
		until(group+" has no lag", func() bool {
			info, err := h.GroupInfo(t.Context(), topic, group)
			return err == nil && info.Lag == 0
		})
	}
	if err := client.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d dead letters redriven within %v, and acked within %v; %d new events meanwhile, at most %d in flight", n, took, acked, published,
		inFlight)
	if least := time.Duration(n-rate) * time.Second / rate; took < least {
		t.Errorf("the redrive took %v; at %d a second it takes %v", took, rate, least)
	}
	if inFlight > window {
		t.Errorf("%d were in flight; %d may be", inFlight, window)
	}
	if len(groups["audit"].redriven) > 0 {
		t.Errorf("the other group got %d redriven events", len(groups["audit"].redriven))
	}
	for i := range n {
		if id := fmt.Sprintf("e%04d", i); groups[groupName].redriven[id] != 1 || groups[groupName].fresh[id] != 0 {
			t.Errorf("%s came %d times redriven and %d times else", id, groups[groupName].redriven[id], groups[groupName].fresh[id])
		}
	}
	for i := range published {
		if id := fmt.Sprint("new-", i); groups[groupName].fresh[id] == 0 {
			t.Errorf("%s did not come while the others were redriven", id)
		}
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
		require.NoError(t, err)
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
