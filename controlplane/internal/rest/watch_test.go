package rest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/require"
)

// watcher is a client that watches.
type watcher struct {
	header http.Header
	lockedbuffer.Buffer
	end   context.CancelFunc
	ended chan struct{}
}

func (w *watcher) Header() http.Header { return w.header }
func (w *watcher) WriteHeader(int)     {}
func (w *watcher) Flush()              {}

// watch begins to watch, in a bubble.
func (a *api) watch(t *testing.T, query, last string) *watcher {
	ctx, end := context.WithCancel(t.Context())
	w := &watcher{header: http.Header{}, end: end, ended: make(chan struct{})}
	r := httptest.NewRequest("GET", "http://127.0.0.1:7080/v1/watch"+query, nil).WithContext(ctx)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	go func() {
		defer close(w.ended)
		a.ServeHTTP(w, r)
	}()
	synctest.Wait()
	return w
}

// event is one that was read.
type event struct {
	name, id         string
	changed, removed []string
}

// events are those since the last call, as a client has read them a while later.
func (w *watcher) events(t *testing.T) (list []event) {
	t.Helper()
	time.Sleep(feedEvery)
	synctest.Wait()
	for block := range strings.SplitSeq(w.Take(), "\n\n") {
		lines := strings.Split(block, "\n")
		if len(lines) < 3 {
			continue
		}
		var data struct{ Changed, Removed []json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(lines[2], "data: ")), &data))
		e := event{name: strings.TrimPrefix(lines[0], "event: "), id: strings.TrimPrefix(lines[1], "id: ")}
		for _, text := range data.Changed {
			e.changed = append(e.changed, string(text))
		}
		for _, text := range data.Removed {
			e.removed = append(e.removed, string(text))
		}
		list = append(list, e)
	}
	return list
}

func names(list []event) (all []string) {
	for _, e := range list {
		all = append(all, e.name)
	}
	return all
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := &registry{
			topics:   []fleet.Topic{{Topic: "orders"}, {Topic: "payments"}},
			sidecars: []fleet.Sidecar{{NodeID: "a", StoreID: "s", Connected: true, LastSeen: time.Now()}},
		}
		stop := make(chan struct{})
		a := newAPI(t, func(c *Config) { c.Registry, c.Stopping = reg, stop })
		all, one := a.watch(t, "", ""), a.watch(t, "?list=topic&name=payments", "")
		first := all.events(t)
		if len(first) != 1 || first[0].name != "reset" {
			t.Fatalf("a watch begins with %+v", first)
		}
		one.events(t)

		reg.change(func() { reg.sidecars[0].LastSeen = time.Now() })
		if got := all.events(t); got != nil {
			t.Errorf("without a change there is %+v", got)
		}
		reg.change(func() {
			reg.topics = []fleet.Topic{{Topic: "orders", AllowedPerSecond: 3}}
			reg.sidecars[0].Version = "v2"
		})
		want(t, a.send("PUT", "/v1/policies/*", "{}"), http.StatusCreated, `{"name":"*","version":1,"updated_at":"T","updated_by":"anonymous"}`)
		got := all.events(t)
		if !slices.Equal(names(got), []string{"sidecar", "topic", "policy"}) {
			t.Fatalf("got %+v", got)
		}
		if e := got[1]; len(e.changed) != 1 || !strings.Contains(e.changed[0], `"allowed_per_second":3`) ||
			!slices.Equal(e.removed, []string{`{"topic":"payments"}`}) {
			t.Errorf("the topics: %+v", e)
		}
		if mine := one.events(t); len(mine) != 1 || len(mine[0].changed) != 0 || len(mine[0].removed) != 1 {
			t.Errorf("the watch of one topic has %+v", mine)
		}

		// What has changed meanwhile comes to who goes on, and all is read anew by who was away for too long.
		all.end()
		<-all.ended
		reg.change(func() { reg.topics = append(reg.topics, fleet.Topic{Topic: "new"}) })
		time.Sleep(time.Minute)
		on := a.watch(t, "", got[2].id)
		if e := on.events(t); len(e) != 1 || len(e[0].changed) != 1 || !strings.Contains(e[0].changed[0], `"new"`) {
			t.Errorf("who goes on has %+v", e)
		}
		for _, id := range []string{"elsewhere-1", "no id", first[0].id + "99999"} {
			late := a.watch(t, "", id)
			if e := late.events(t); len(e) != 1 || e[0].name != "reset" {
				t.Errorf("after %q: %+v", id, e)
			}
			late.end()
			<-late.ended
		}
		time.Sleep((keepRemoved + 2) * feedEvery)
		if e := a.watch(t, "", first[0].id).events(t); e[0].name != "reset" {
			t.Errorf("after its removals are forgotten: %+v", e)
		}
		on.Take()
		time.Sleep(2 * beatEvery)
		if got := on.Take(); strings.Count(got, ":\n\n") != 2 {
			t.Errorf("in silence there is %q", got)
		}
		close(stop)
		<-on.ended
		<-one.ended
	})
}

// TestWatchGoesOnBetweenEvents cuts clients off after each event of a turn: they get exactly the others, each once.
func TestWatchGoesOnBetweenEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := &registry{sidecars: []fleet.Sidecar{{NodeID: "a", Connected: true}}}
		stop := make(chan struct{})
		a := newAPI(t, func(c *Config) { c.Registry, c.Stopping = reg, stop })
		whole := a.watch(t, "", "")
		whole.events(t)
		reg.change(func() { reg.topics, reg.sidecars[0].Version = []fleet.Topic{{Topic: "orders"}}, "v2" })
		want(t, a.send("PUT", "/v1/policies/*", "{}"), http.StatusCreated, `{"name":"*","version":1,"updated_at":"T","updated_by":"anonymous"}`)
		turn := whole.events(t)
		if len(turn) < 3 {
			t.Fatalf("the turn has %+v", turn)
		}
		for i, e := range turn {
			on := a.watch(t, "", e.id)
			if got := on.events(t); !slices.Equal(names(got), names(turn[i+1:])) {
				t.Errorf("behind the %s of %v come %v", e.name, names(turn), names(got))
			}
			if got := on.events(t); got != nil {
				t.Errorf("and then %v", names(got))
			}
			on.end()
			<-on.ended
		}
		close(stop)
		<-whole.ended
	})
}

func TestWatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		a := newAPI(t, func(c *Config) { c.Stopping = stop })
		for range budget.ControlPlanePlaces()[budget.Watches] {
			a.watch(t, "", "")
		}
		if w := a.send("GET", "/v1/watch", ""); w.Code != http.StatusServiceUnavailable {
			t.Errorf("one more: %d %s", w.Code, w.Body)
		}
		close(stop)
		synctest.Wait()
		if w := a.send("GET", "/v1/watch", ""); w.Code != http.StatusOK {
			t.Errorf("once they have ended: %d %s", w.Code, w.Body)
		}
	})
}

func TestListsAreCompressedAndHaveETags(t *testing.T) {
	reg := &registry{}
	for range 100 {
		reg.topics = append(reg.topics, fleet.Topic{Topic: strings.Repeat("x", 100)})
	}
	a := newAPI(t, func(c *Config) { c.Registry = reg })
	plain, packed := a.send("GET", "/v1/topics", ""), a.send("GET", "/v1/topics", "", "Accept-Encoding", "gzip")
	if packed.Header().Get("Content-Encoding") != "gzip" || packed.Body.Len() > plain.Body.Len()/10 {
		t.Errorf("%q, %d bytes of %d", packed.Header().Get("Content-Encoding"), packed.Body.Len(), plain.Body.Len())
	}
	unpack, err := gzip.NewReader(packed.Body)
	require.NoError(t, err)
	text, err := io.ReadAll(unpack)
	if err != nil || string(text) != plain.Body.String() {
		t.Errorf("%v: it unpacks to something else", err)
	}
	tag := plain.Header().Get("ETag")
	if tag == "" || tag != packed.Header().Get("ETag") {
		t.Errorf("ETags %q and %q", tag, packed.Header().Get("ETag"))
	}
	if w := a.send("GET", "/v1/topics", "", "If-None-Match", tag); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("got %d", w.Code)
	}
	reg.topics[0].AllowedPerSecond = 1
	if w := a.send("GET", "/v1/topics", "", "If-None-Match", tag); w.Code != http.StatusOK {
		t.Errorf("after a change: %d", w.Code)
	}
}
