package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// pages reads a list page by page, and returns its names.
func pages(t *testing.T, a *api, path, list, name string) (all string) {
	t.Helper()
	for cursor := ""; ; {
		w := a.send("GET", path+cursor, "")
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path+cursor, w.Code, w.Body)
		}
		body := map[string]any{}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		elements, _ := body[list].([]any)
		for _, e := range elements {
			all += fmt.Sprint(e.(map[string]any)[name], " ")
		}
		next, more := body["next"].(string)
		if !more {
			return all
		}
		all += "| "
		cursor = "&cursor=" + url.QueryEscape(next)
	}
}

func TestListsComeInPages(t *testing.T) {
	reg := &registry{}
	a := newAPI(t, func(c *Config) { c.Registry = reg })
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, name := range []string{"orders.b", "orders.a", "mails", "orders.c"} {
		reg.topics = append(reg.topics, fleet.Topic{Topic: name, AllowedPerSecond: float64([]int{9, 100, 9, 20}[i])})
	}
	for i, s := range []struct{ node, store string }{{"n1", "s1"}, {"n1", "s2"}, {"n2", "s1"}} {
		reg.sidecars = append(reg.sidecars, fleet.Sidecar{NodeID: s.node, StoreID: s.store, Connected: true,
			LastSeen: at.Add(time.Duration(-i) * time.Hour), Address: fmt.Sprint("h", i)})
	}
	for _, c := range []struct{ path, list, name, want string }{
		{"topics?limit=2", "topics", "topic", "mails orders.a | orders.b orders.c "},
		{"topics?limit=3&prefix=orders.", "topics", "topic", "orders.a orders.b orders.c "},
		{"topics?limit=1&sort=-allowed_per_second", "topics", "topic", "orders.a | orders.c | mails | orders.b "},
		{"topics?limit=3&sort=allowed_per_second", "topics", "topic", "mails orders.b orders.c | orders.a "},
		{"sidecars?limit=1", "sidecars", "store_id", "s1 | s2 | s1 "},
		{"sidecars?limit=1&sort=last_seen", "sidecars", "address", "h2 | h1 | h0 "},
		{"sidecars?prefix=n2&sort=-node_id", "sidecars", "node_id", "n2 "},
	} {
		if got := pages(t, a, "/v1/"+c.path, c.list, c.name); got != c.want {
			t.Errorf("%s: %q, want %q", c.path, got, c.want)
		}
	}
	const byName = "cursor=eyJzIjoidG9waWMiLCJ0IjoiIiwibiI6ImEifQ" // {"s":"topic","t":"","n":"a"}
	if w := a.send("GET", "/v1/topics?"+byName, ""); w.Code != http.StatusOK {
		t.Errorf("a cursor: %d %s", w.Code, w.Body)
	}
	for _, query := range []string{
		"limit=0", "limit=1001", "limit=x", "sort=rate", "cursor=x", "cursor=bnVsbA", byName + "&sort=-topic", "prefix=", "prefx=a",
	} {
		refused(t, a.send("GET", "/v1/topics?"+query, ""), wire.BadRequest)
	}
}
