package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// edge is three sidecars with a log each that know each other by --peers, over unix sockets, and
// the events that they hold together.
type edge struct {
	sites   []*site
	sockets []string
	held    []place // by any of them: some ids at several places
}

// first is the replay of the places that keep accepts: ascending, each id once, at its first place
// of those.
func (e *edge) first(keep func(place) bool) (out []place) {
	seen := map[string]bool{}
	for _, p := range slices.SortedFunc(slices.Values(e.held), before) {
		if keep(p) && !seen[p.ID] {
			seen[p.ID] = true
			out = append(out, p)
		}
	}
	return out
}

func all(place) bool { return true }

// place is where an event is in the order of a replay.
type place struct {
	TS  int64  `json:"ts"`
	ID  string `json:"id"`
	Key string `json:"key"`
}

func before(a, b place) int {
	if a.TS != b.TS {
		return int(a.TS - b.TS)
	}
	return strings.Compare(a.ID, b.ID)
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	e := newSockets(t, 3)
	e.fill(t)
	return e
}

// fill publishes events with many ties in their times; some ids go to two sites, at the same time
// or another.
func (e *edge) fill(t *testing.T) {
	t.Helper()
	random := rand.New(rand.NewPCG(5, 5))
	for n := range 240 {
		number := random.IntN(200)
		p := place{TS: 1_700_000_000_000 + int64(random.IntN(12)), ID: fmt.Sprintf("e-%03d", number), Key: fmt.Sprintf("k%d", number%5)}
		client := &admin.HTTP{AppURL: e.sites[n%3].process().URL()}
		r, err := client.Publish(t.Context(), &wire.Event{ID: p.ID, TS: p.TS, Topic: federationTopic, Key: p.Key, Payload: []byte(`1`)})
		client.CloseIdle()
		require.NoError(t, err)
		if !r.Duplicate {
			e.held = append(e.held, p)
		}
	}
}

// page is an answer of /replay.
type page struct {
	Topic   string   `json:"topic"`
	Count   int      `json:"count"`
	Events  []place  `json:"events"`
	Next    string   `json:"next"`
	Partial bool     `json:"partial"`
	Missing []string `json:"missing"`
	Code    string   `json:"code"`
}

// get asks a site's replay API.
func (e *edge) get(t *testing.T, site int, query url.Values) (status int, p page) {
	t.Helper()
	socket := strings.TrimPrefix(e.sockets[site], "unix:")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: federationPatience}).Get("http://localhost/replay?" + query.Encode())
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", query.Encode(), err, body)
	}
	if resp.StatusCode == http.StatusOK && p.Count != len(p.Events) {
		t.Errorf("%s: count %d with %d events", query.Encode(), p.Count, len(p.Events))
	}
	return resp.StatusCode, p
}

// all follows a replay from page to page.
func (e *edge) all(t *testing.T, site int, query url.Values) (got []place) {
	t.Helper()
	for {
		status, p := e.get(t, site, query)
		if status != http.StatusOK {
			t.Fatalf("%s: status %d, %s", query.Encode(), status, p.Code)
		}
		got = append(got, p.Events...)
		if p.Next == "" {
			return got
		}
		query = url.Values{"cursor": {p.Next}, "limit": query["limit"]}
		if p.Partial {
			query.Set("partial", "ok")
		}
	}
}

func TestPagesOfAFleet(t *testing.T) {
	e := newEdge(t)
	whole := e.first(all)
	middle := whole[len(whole)/2]
	for _, c := range []struct {
		name  string
		query url.Values
		want  []place
	}{
		{"one page", url.Values{}, whole},
		{"small pages", url.Values{"limit": {"7"}}, whole},
		{"by key", url.Values{"limit": {"5"}, "key": {"k3"}}, e.first(func(p place) bool { return p.Key == "k3" })},
		{"from a time", url.Values{"limit": {"9"}, "from": {"ts"}, "ts": {fmt.Sprint(middle.TS)}},
			e.first(func(p place) bool { return p.TS >= middle.TS })},
		{"after an event", url.Values{"limit": {"9"}, "from": {"afterId"}, "afterId": {middle.ID}},
			e.first(func(p place) bool { return before(p, middle) > 0 })},
	} {
		for site := range e.sites {
			c.query.Set("topic", federationTopic)
			c.query.Set("scope", "fleet")
			if got := e.all(t, site, c.query); !slices.Equal(got, c.want) {
				t.Errorf("%s, asked of %s: %d events, want %d\n%v\n%v", c.name, e.sites[site].name, len(got), len(c.want), got, c.want)
			}
		}
	}
	// Downwards, the first place of an id that has two is another one.
	down := e.all(t, 0, url.Values{"topic": {federationTopic}, "scope": {"fleet"}, "order": {"desc"}, "limit": {"11"}})
	if !slices.IsSortedFunc(down, func(a, b place) int { return before(b, a) }) || !slices.Equal(ids(down), ids(whole)) {
		t.Errorf("downwards: %v", down)
	}
	status, p := e.get(t, 0, url.Values{"topic": {federationTopic}, "scope": {"fleet"}, "from": {"afterId"}, "afterId": {"nobody"}})
	if status != http.StatusNotFound {
		t.Errorf("after an event that is nowhere: status %d, %+v", status, p)
	}
}

// ids are the sorted ids of events.
func ids(events []place) (out []string) {
	for _, p := range events {
		out = append(out, p.ID)
	}
	slices.Sort(out)
	return out
}

func TestPartOfAFleet(t *testing.T) {
	e := newEdge(t)
	lost := e.sites[1]
	lost.kill()
	query := url.Values{"topic": {federationTopic}, "scope": {"fleet"}, "limit": {"20"}}
	status, p := e.get(t, 0, query)
	if status != http.StatusBadGateway || p.Code != string(wire.PartialFleet) || len(p.Missing) != 1 ||
		!strings.Contains(p.Missing[0], e.sockets[1]) {
		t.Errorf("without %s: status %d, %+v", lost.name, status, p)
	}

	query.Set("partial", "ok")
	status, first := e.get(t, 0, query)
	if status != http.StatusOK || !first.Partial || len(first.Missing) != 1 || len(first.Events) != 20 || first.Next == "" {
		t.Fatalf("a partial page: status %d, %+v", status, first)
	}
	e.partialExport(t)

	// The missing events come on later pages, once the sidecar is back.
	lost.start(t)
	rest := e.all(t, 0, url.Values{"cursor": {first.Next}, "limit": {"20"}})
	got := append(slices.Clone(first.Events), rest...)
	if !slices.Equal(ids(got), ids(e.first(all))) {
		t.Errorf("%d events over all pages, want %d: %v", len(got), len(e.first(all)), ids(got))
	}
}

// partialExport checks that an export without all events says so.
func (e *edge) partialExport(t *testing.T) {
	t.Helper()
	var missing []string
	client := &admin.HTTP{ReplayURL: e.sockets[2]}
	defer client.CloseIdle()
	n := 0
	for _, err := range client.Export(t.Context(), sluice.ExportQuery{
		Topic: federationTopic, Scope: "fleet", Partial: true, Missing: func(names []string) { missing = names },
	}) {
		require.NoError(t, err)
		n++
	}
	if n == 0 || n >= len(e.first(all)) || len(missing) != 1 || !strings.Contains(missing[0], e.sockets[1]) {
		t.Errorf("%d of %d events, missing %q", n, len(e.first(all)), missing)
	}
	client.CloseIdle()
}

// TestWhoLeavesInGoodOrderIsNotMissed stops one of two sidecars on a shared store in order, and
// kills another one.
func TestWhoLeavesInGoodOrderIsNotMissed(t *testing.T) {
	f := newFederation(t)
	h := newHistory()
	for _, s := range f.sites {
		h.publishOne(t.Context(), s.process(), s.name+"-0")
	}
	f.awaitWhole(t, h)
	first := f.sites[0]
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, first.process().Stop(ctx))
	asked := f.sites[2].process()
	h.await(t, "an export without the one that stopped", func() bool {
		events, err := export(t.Context(), asked)
		return err == nil && len(events) == len(f.sites)
	})
	f.sites[1].kill()
	h.await(t, "that the one that was killed is missed", func() bool {
		_, err := export(t.Context(), asked)
		refused, ok := asError(err)
		return ok && refused.Code == wire.PartialFleet && strings.Contains(strings.Join(refused.Missing, " "), "s1")
	})
	// It stays missed: no other sidecar can have the events that may be in its spool.
	if _, err := export(t.Context(), asked); err == nil {
		t.Error("an export without a sidecar that was killed is whole")
	}
}

func asError(err error) (*wire.Error, bool) {
	refused := wire.AsError(err)
	return refused, err != nil && refused != nil
}

func (h *history) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(federationPatience); !done(); pause.For(t.Context(), 100*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
