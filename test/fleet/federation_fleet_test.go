package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const (
	federationTopic = "fleet.orders"
	// patience is how long a busy machine may take for anything.
	federationPatience = 2 * time.Minute
)

// policies let publishers do as they like, and spool while the store is away.
const policies = `[{name: "*", connection: {rate: 0}, publish: {rate: 0}, partitions: 4}]`

// site is one sidecar of a fleet, with its data and its store through all its lives.
type site struct {
	name string
	args []string
	dir  string

	mu  sync.Mutex
	now *testkit.Sidecar // nil: it is down
}

// fleet is five sidecars of one control plane: the first two share a store that can be cut off,
// each of the others has its own.
type federation struct {
	sites []*site
	store *faultproxy.Proxy // between the shared store and its sidecars
}

func newFederation(t *testing.T) *federation {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(policies), 0o600))
	plane := testkit.StartControlPlane(t, "--policies", file)
	db := mongotest.Shared(t)
	f := &federation{store: faultproxy.New(t, db.Addr())}
	shared := db.URIVia(f.store.Addr(), db.NewDatabase(t))
	for i := range 5 {
		s := &site{name: fmt.Sprintf("s%d", i), dir: filepath.Join(dir, fmt.Sprint(i))}
		s.args = []string{"--node-id", s.name, "--control-plane", plane.XDS(), "--store-timeout", "2s"}
		if i < 2 {
			s.args = append(s.args, "--store", shared)
		}
		s.start(t)
		f.sites = append(f.sites, s)
	}
	return f
}

func (s *site) start(t *testing.T) {
	t.Helper()
	p := testkit.StartSidecar(t, s.dir, s.args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = p
}

func (s *site) kill() {
	s.mu.Lock()
	p := s.now
	s.now = nil
	s.mu.Unlock()
	p.Kill()
}

// process is the site's present life; nil: it is down.
func (s *site) process() *testkit.Sidecar {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// history has the ids that publishers have sent, and the ids that were answered OK.
type history struct {
	mu       sync.Mutex
	sent     map[string]bool
	accepted map[string]bool
	count    historyCounts
}

// counts is how often the things that the test needs have happened.
type historyCounts struct {
	spooled       int // events that a spool has accepted
	whole, failed int // exports
}

func newHistory() *history { return &history{sent: map[string]bool{}, accepted: map[string]bool{}} }

func (h *history) send(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent[id] = true
}

func (h *history) accept(r wire.Receipt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.accepted[r.ID] = true
	if r.Spooled {
		h.count.spooled++
	}
}

func (h *history) exported(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.count.whole++
	} else {
		h.count.failed++
	}
}

func (h *history) counts() historyCounts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// known are the ids accepted so far.
func (h *history) known() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[string]bool, len(h.accepted))
	for id := range h.accepted {
		out[id] = true
	}
	return out
}

// publish sends events to a site until ctx ends: most with ids of its own, some with ids that other
// sites publish as well.
func (h *history) publish(ctx context.Context, s *site, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 7))
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d", s.name, n)
		if random.IntN(10) == 0 {
			id = fmt.Sprintf("common-%d", n/20)
		}
		if p := s.process(); p != nil {
			h.publishOne(ctx, p, id)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.IntN(80)) * time.Millisecond):
		}
	}
}

func (h *history) publishOne(ctx context.Context, p *testkit.Sidecar, id string) {
	client := &admin.HTTP{AppURL: p.URL()}
	defer client.CloseIdle()
	h.send(id)
	r, err := client.Publish(ctx, &wire.Event{ID: id, Topic: federationTopic, Key: id, Payload: []byte(`{"n":1}`)})
	if err == nil {
		h.accept(r)
	}
}

// export asks a sidecar for the whole fleet's events.
func export(ctx context.Context, p *testkit.Sidecar) (events []wire.Event, err error) {
	client := &admin.HTTP{ReplayURL: p.ReplayURL()}
	defer client.CloseIdle()
	for e, err := range client.Export(ctx, sluice.ExportQuery{Topic: federationTopic, Scope: "fleet"}) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// check compares a whole export with the ids that were accepted before it began: it has all of
// them, each once, in order, and no id that no publisher has sent.
func (h *history) check(t *testing.T, events []wire.Event, before map[string]bool) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := make(map[string]bool, len(events))
	for i, e := range events {
		if seen[e.ID] {
			t.Errorf("%s comes twice", e.ID)
		}
		seen[e.ID] = true
		if !h.sent[e.ID] {
			t.Errorf("%s was never sent", e.ID)
		}
		if i > 0 && (e.TS < events[i-1].TS || e.TS == events[i-1].TS && e.ID <= events[i-1].ID) {
			t.Errorf("%s (%d) comes after %s (%d)", e.ID, e.TS, events[i-1].ID, events[i-1].TS)
		}
	}
	missing := 0
	for id := range before {
		if !seen[id] {
			if missing++; missing <= 10 {
				t.Errorf("%s was accepted before the export and is not in it", id)
			}
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d events are missing", missing, len(before))
	}
}
