package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// lease is short enough for a test to wait for its end, and long enough for the server to answer in
// on a loaded machine.
const lease = 3 * time.Second

// fleet is several sidecars on one store. Each keeps its name, its data folder and its clients
// through all its lives.
type fleet struct {
	store   string
	file    string // policies
	dirs    []string
	lives   []*testkit.Sidecar
	clients []*clients
	ledger  *ledger
	done    chan struct{}
}

func newFleet(t *testing.T, store string, n int, policies string) *fleet {
	t.Helper()
	dir := t.TempDir()
	f := &fleet{store: store, ledger: newLedger(), done: make(chan struct{})}
	f.ledger.moving = true
	f.file = testkit.Write(t, filepath.Join(dir, "policies.yaml"), policies)
	for i := range n {
		f.dirs = append(f.dirs, filepath.Join(dir, fmt.Sprintf("s%d", i)))
		f.lives = append(f.lives, nil)
		f.clients = append(f.clients, &clients{ledger: f.ledger, done: f.done, pace: 100 * time.Millisecond})
		f.start(t, i)
	}
	return f
}

func (f *fleet) start(t *testing.T, i int) {
	t.Helper()
	f.lives[i] = testkit.StartSidecar(t, f.dirs[i], "--store", f.store, "--policies", f.file,
		"--node-id", fmt.Sprintf("s%d", i), "--lease", lease.String())
	f.clients[i].use(f.lives[i])
}

// load publishes through every sidecar, with a member of the group on each. endPublishing ends the
// publishes, and endConsuming the members.
func (f *fleet) load(t *testing.T) (endPublishing, endConsuming func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var publishing, consuming sync.WaitGroup
	for i, s := range f.clients {
		publishing.Go(func() { s.publish(ctx, i) })
		consuming.Go(func() { s.consume(ctx) })
	}
	endPublishing = func() {
		close(f.done)
		publishing.Wait()
	}
	endConsuming = func() {
		cancel()
		consuming.Wait()
	}
	t.Cleanup(cancel)
	return endPublishing, endConsuming
}

// settled makes the checks at the end of every test of a fleet.
func (f *fleet) settled(t *testing.T, endPublishing, endConsuming func()) {
	t.Helper()
	endPublishing()
	for i, p := range f.lives {
		awaitEmptySpool(t, i, p)
	}
	if lag := drained(t, f.lives[0]); lag > 0 {
		t.Errorf("%d events are not settled by the group in the end", lag)
	}
	if n := f.ledger.unseen(); n > 0 {
		t.Errorf("%d events that were answered OK never reached the group", n)
	}
	endConsuming()
	events := export(t, f.lives[0])
	f.ledger.checkExport(events, number)
	for _, fault := range f.ledger.faults {
		t.Error(fault)
	}
	t.Logf("%d events answered OK, %d of them from a spool; %d stored, %d delivered more than once",
		len(f.ledger.receipts), f.ledger.spooled(), len(events), f.ledger.redelivered())
}

// awaitEmptySpool waits until a sidecar has moved its whole spool into the store.
func awaitEmptySpool(t *testing.T, i int, p *testkit.Sidecar) {
	t.Helper()
	h := &admin.HTTP{OpsURL: p.OpsURL()}
	defer h.CloseIdle()
	for deadline := time.Now().Add(settleTimeout); ; pause.For(t.Context(), 50*time.Millisecond) {
		status, err := h.Status(t.Context())
		require.NoError(t, err)
		if status.Spool.Events == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("sidecar %d: %d events are still in the spool", i, status.Spool.Events)
		}
	}
}

// TestFleetIsKilledPausedAndRestarted lets three sidecars share a store, with publishers and a
// member of one group on each, while they are killed, paused for longer than their lease and
// restarted at random.
func TestFleetIsKilledPausedAndRestarted(t *testing.T) {
	t.Parallel()
	testkit.Rounds(t, disturbFleet)
}

func disturbFleet(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	db := mongotest.Shared(t)
	f := newFleet(t, db.URI(db.NewDatabase(t)), 3, policies)
	endPublishing, endConsuming := f.load(t)

	disturbances := []string{"kill", "pause", "restart", "kill"}
	random.Shuffle(len(disturbances), func(i, j int) { disturbances[i], disturbances[j] = disturbances[j], disturbances[i] })
	for _, what := range disturbances {
		pause.For(t.Context(), time.Second+time.Duration(random.IntN(2000))*time.Millisecond)
		i := random.IntN(len(f.lives))
		switch what {
		case "kill":
			f.lives[i].Kill()
			f.start(t, i)
		case "pause":
			f.pause(t, i, lease+time.Duration(random.IntN(1500))*time.Millisecond)
		case "restart":
			f.stop(t, i)
			f.start(t, i)
		}
	}
	f.settled(t, endPublishing, endConsuming)
	deliberate := len(f.ledger.seen)/100 + len(f.ledger.seen)/900 // see settle
	if n, most := f.ledger.redelivered(), deliberate+len(disturbances)*200; n > most {
		t.Errorf("%d events were delivered again; want at most %d", n, most)
	}
}

// pause stops a sidecar's process for some time, and lets it go on. Frames that it had written for
// its clients may reach them only then: deliveries whose leases are long over, and that the sidecar
// cannot take back.
func (f *fleet) pause(t *testing.T, i int, d time.Duration) {
	t.Helper()
	pid := f.lives[i].PID()
	f.clients[i].late.Store(true)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	pause.For(t.Context(), d)
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	pause.For(t.Context(), lease)
	f.clients[i].late.Store(false)
}

func put(t *testing.T, url, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("PUT %s: %s %s", url, resp.Status, text)
	}
}

func (f *fleet) stop(t *testing.T, i int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.lives[i].Stop(ctx); err != nil {
		t.Errorf("sidecar %d did not stop gracefully: %v\n%s", i, err, f.lives[i].Log())
	}
}

// TestStoreIsAway stops the database under load, for longer than any lease.
func TestStoreIsAway(t *testing.T) {
	t.Parallel()
	db := mongotest.Start(t)
	db.Needs(t, mongotest.Restarts)
	f := newFleet(t, db.URI(db.NewDatabase(t)), 2, policies)
	endPublishing, endConsuming := f.load(t)
	await := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(settleTimeout); !holds(); pause.For(t.Context(), 50*time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited %v for %s", settleTimeout, what)
			}
		}
	}
	await("events in the store", func() bool { return f.ledger.stored() >= 50 })
	db.Stop()
	pause.For(t.Context(), 2*lease)
	await("events in spools", func() bool { return f.ledger.spooled() >= 50 })
	db.Restart()
	before := f.ledger.stored()
	await("events in the store again", func() bool { return f.ledger.stored() >= before+50 })
	f.settled(t, endPublishing, endConsuming)
}

// TestSameIDThroughTwoSidecars publishes every id through both at once.
func TestSameIDThroughTwoSidecars(t *testing.T) {
	db := mongotest.Shared(t)
	f := newFleet(t, db.URI(db.NewDatabase(t)), 2, policies)
	const ids = 60
	type answer struct {
		receipt wire.Receipt
		err     error
	}
	answers := make([][2]answer, ids)
	var both sync.WaitGroup
	begin := make(chan struct{})
	for side, p := range f.lives {
		both.Go(func() {
			h := &admin.HTTP{AppURL: p.URL()}
			defer h.CloseIdle()
			<-begin
			for n := range ids {
				payload := `{"n":1}`
				if n%2 == 1 { // half of them differ
					payload = fmt.Sprintf(`{"side":%d}`, side)
				}
				a := &answers[n][side]
				a.receipt, a.err = h.Publish(t.Context(), &wire.Event{ID: fmt.Sprintf("id-%d", n), Topic: topic, Payload: []byte(payload)})
			}
		})
	}
	close(begin)
	both.Wait()
	for n, two := range answers {
		first, second := two[0], two[1]
		if second.err == nil && !second.receipt.Duplicate {
			first, second = second, first
		}
		if first.err != nil || first.receipt.Duplicate {
			t.Errorf("id-%d: neither sidecar has stored it: %+v", n, two)
			continue
		}
		var refused *wire.Error
		switch {
		case n%2 == 0 && (second.err != nil || !second.receipt.Duplicate || second.receipt.Seq != first.receipt.Seq ||
			second.receipt.Partition != first.receipt.Partition):
			t.Errorf("id-%d with the same content: %+v; want one event and one duplicate", n, two)
		case n%2 == 1 && !(errors.As(second.err, &refused) && refused.Code == wire.Conflict):
			t.Errorf("id-%d with other content: %+v; want one event and one conflict", n, two)
		}
	}
	if events := export(t, f.lives[0]); len(events) != ids {
		t.Errorf("%d events are stored; want %d", len(events), ids)
	}
}

// listen subscribes on one sidecar, acks the events and passes them on.
func listen(t *testing.T, p *testkit.Sidecar, group, from string) (events <-chan wire.Delivery, end func()) {
	t.Helper()
	c, err := sluice.DialConn(t.Context(), p.URL(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	got := make(chan wire.Delivery, 10_000)
	var acks sync.WaitGroup
	acks.Add(1) // until there is a subscription to ack on
	var sub *sluice.ConnSubscription
	sub, err = c.Subscribe(t.Context(), topic, group, &wire.SubscribeOptions{From: from}, func(ds []wire.Delivery) {
		acks.Wait()
		for _, d := range ds {
			_ = sub.AckAsync(nil, d.Event.ID) // a broken connection gives it back
			got <- d
		}
	})
	acks.Done()
	require.NoError(t, err)
	return got, func() { c.Close() }
}

func publishOne(t *testing.T, p *testkit.Sidecar, id string) {
	t.Helper()
	h := &admin.HTTP{AppURL: p.URL()}
	defer h.CloseIdle()
	if _, err := h.Publish(t.Context(), &wire.Event{ID: id, Topic: topic, Payload: []byte(`1`)}); err != nil {
		t.Fatal(err)
	}
}

func awaitEvent(t *testing.T, events <-chan wire.Delivery, id string) wire.Delivery {
	t.Helper()
	select {
	case d := <-events:
		if d.Event.ID != id {
			t.Fatalf("got event %s; want %s", d.Event.ID, id)
		}
		return d
	case <-time.After(time.Minute):
		t.Fatalf("event %s did not come", id)
		return wire.Delivery{}
	}
}

// TestEventReachesAnotherSidecar publishes through one sidecar to a group that waits at another.
func TestEventReachesAnotherSidecar(t *testing.T) {
	db := mongotest.Shared(t)
	f := newFleet(t, db.URI(db.NewDatabase(t)), 2, policies)
	events, _ := listen(t, f.lives[1], groupName, wire.FromLatest)
	publishOne(t, f.lives[0], "warm") // waits for the group to own its partitions
	awaitEvent(t, events, "warm")
	var slowest time.Duration
	for n := range 20 {
		id := fmt.Sprintf("e%d", n)
		began := time.Now()
		publishOne(t, f.lives[0], id)
		awaitEvent(t, events, id)
		slowest = max(slowest, time.Since(began))
	}
	t.Logf("the slowest of 20 took %v from before the publish", slowest)
}

// TestTakeover kills the sidecar that has the group, with a delivery unacked.
func TestTakeover(t *testing.T) {
	t.Parallel()
	db := mongotest.Shared(t)
	f := newFleet(t, db.URI(db.NewDatabase(t)), 2, policies)
	c, err := sluice.DialConn(t.Context(), f.lives[0].URL(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	held := make(chan wire.Delivery, 10)
	if _, err := c.Subscribe(t.Context(), topic, groupName, &wire.SubscribeOptions{From: wire.FromEarliest}, func(ds []wire.Delivery) {
		for _, d := range ds {
			held <- d
		}
	}); err != nil {
		t.Fatal(err)
	}
	publishOne(t, f.lives[1], "e")
	awaitEvent(t, held, "e")
	f.lives[0].Kill()
	killed := time.Now()
	events, _ := listen(t, f.lives[1], groupName, wire.FromEarliest)
	if d := awaitEvent(t, events, "e"); d.Attempt != 2 {
		t.Errorf("attempt %d after the takeover; want 2", d.Attempt)
	}
	t.Logf("taken over %v after the kill, with a lease of %v", time.Since(killed), lease)
}

// TestSeekThroughAnotherSidecar moves a group that another sidecar owns and has caught up with.
func TestSeekThroughAnotherSidecar(t *testing.T) {
	db := mongotest.Shared(t)
	f := newFleet(t, db.URI(db.NewDatabase(t)), 2, policies)
	events, _ := listen(t, f.lives[0], groupName, wire.FromEarliest)
	publishOne(t, f.lives[0], "e")
	awaitEvent(t, events, "e")
	h := &admin.HTTP{AppURL: f.lives[1].URL()}
	defer h.CloseIdle()
	put(t, f.lives[1].URL()+"/v1/topics/"+topic+"/groups/"+groupName+"/cursor", `{"from":"earliest"}`)
	awaitEvent(t, events, "e")
}
