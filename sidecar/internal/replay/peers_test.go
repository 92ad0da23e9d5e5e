package replay

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// frozenMemory is a memory as a snapshot.
type frozenMemory struct {
	*memory
	closed *int
}

func (f frozenMemory) Close() { *f.closed++ }

// sidecarOf is a sidecar with a store and a spool.
func sidecarOf(c Config, store, spool []*eventlog.Record) (Config, *int) {
	closed := new(int)
	both := newMemory(append(append([]*eventlog.Record{}, store...), spool...)...)
	waiting := newMemory(spool...)
	c.Store, c.Logger, c.Now = both, slog.New(slog.DiscardHandler), now
	c.Parts = Parts{Log: newMemory(store...), Spool: func(_ context.Context, topic string) (eventlog.Snapshot, error) {
		if topic != "orders" {
			return nil, fmt.Errorf("topic %s: %w", topic, eventlog.ErrNotFound)
		}
		return frozenMemory{waiting, closed}, nil
	}, Waiting: waiting.Lookup}
	c.Self = func() Peer { return Peer{NodeID: "node-1", Instance: "i", StoreID: "s", Shared: true, Version: "1"} }
	return c, closed
}

func TestExportOfAPart(t *testing.T) {
	c, closed := sidecarOf(Config{}, []*eventlog.Record{record(1, "a", ""), record(3, "c", "k"), record(4, "d", "")},
		[]*eventlog.Record{record(2, "b", "k"), record(5, "e", "")})
	h := New(c)
	for _, tc := range []struct{ params, want string }{
		{"part=log", "a c d"},
		{"part=spool", "b e"},
		{"part=log&order=desc", "d c a"},
		{"part=spool&key=k", "b"},
		{"part=log&limit=2", "a c"},
		{"part=log&afterTs=1&afterId=a", "c d"},
		{"part=log&afterTs=2&afterId=anything", "c d"},
		{"part=log&afterTs=3&afterId=c&order=desc", "a"},
		{"part=log&fromTs=3&toTs=3", "c"},
		{"part=spool&topic=other", ""},
		{"", "a b c d e"},
		{"order=desc&afterTs=3&afterId=c", "b a"},
	} {
		topic := "topic=orders&"
		if strings.Contains(tc.params, "topic=") {
			topic = ""
		}
		w := get(h, "/export?"+topic+tc.params)
		if w.Code != 200 || w.Header().Get(HeaderNodeID) != "node-1" || w.Header().Get(HeaderStoreID) != "s" {
			t.Errorf("%s: %d %v", tc.params, w.Code, w.Header())
		}
		equalIDs(t, tc.params, lineIDs(t, w.Body), strings.Fields(tc.want))
	}
	if *closed != 2 {
		t.Errorf("%d of 2 snapshots closed", *closed)
	}
	for _, tc := range []struct{ params, names string }{
		{"part=all", "part"}, {"part=", "part"}, {"part=log&scope=fleet", "part"}, {"part=log&ndjson=0", "part"},
		{"part=log&limit=0", "limit"}, {"afterTs=1", "afterTs"}, {"afterId=a", "afterId"}, {"afterTs=x&afterId=a", "afterTs"},
		{"order=up", "order"},
	} {
		if w := get(h, "/export?topic=orders&"+tc.params); w.Code != 400 || !strings.Contains(w.Body.String(), tc.names) {
			t.Errorf("%s: %d %s", tc.params, w.Code, w.Body)
		}
	}
	c.Parts.Spool = nil // an embedded log has none
	if w := get(New(c), "/export?topic=orders&part=spool"); w.Code != 200 || w.Body.Len() > 0 {
		t.Errorf("no spool: %d %s", w.Code, w.Body)
	}
}

func TestAPartThatCannotBeRead(t *testing.T) {
	c, _ := sidecarOf(Config{}, nil, nil)
	m := newMemory()
	m.onScan = func(int) error { return fmt.Errorf("away: %w", eventlog.ErrUnavailable) }
	c.Parts.Log = m
	c.Parts.Spool = func(context.Context, string) (eventlog.Snapshot, error) {
		return nil, fmt.Errorf("away: %w", eventlog.ErrUnavailable)
	}
	for _, part := range []string{"log", "spool"} {
		if w := get(New(c), "/export?topic=orders&part="+part); w.Code != 503 || !strings.Contains(w.Body.String(), "store_unavailable") {
			t.Errorf("%s: %d %s", part, w.Code, w.Body)
		}
	}
}

// TestThePartThatFindsNothingIsAlive: while one scan takes long, empty lines say that the answer
// goes on; the header of a spool comes before its events are looked for.
func TestThePartThatFindsNothingIsAlive(t *testing.T) {
	c, _ := sidecarOf(Config{Beat: time.Millisecond}, []*eventlog.Record{record(1, "a", "")}, []*eventlog.Record{record(2, "b", "")})
	for first, part := range []string{"log", "spool"} { // whether a spool has anything at all is looked up before
		release := make(chan struct{})
		hold := func(n int) error {
			if n == 1+first {
				<-release
			}
			return nil
		}
		log, spool := newMemory(record(1, "a", "")), newMemory(record(2, "b", ""))
		log.onScan, spool.onScan = hold, hold
		c.Parts.Log = log
		c.Parts.Spool = func(context.Context, string) (eventlog.Snapshot, error) { return frozenMemory{spool, new(int)}, nil }
		resp := fetch(t, serve(t, New(c)), "/export?topic=orders&part="+part, "identity")
		lines := bufio.NewReader(resp.Body)
		for range 3 {
			if line, err := lines.ReadString('\n'); err != nil || line != "\n" {
				t.Fatalf("%s: %q, %v", part, line, err)
			}
		}
		close(release)
		rest, err := io.ReadAll(lines)
		if err != nil || strings.Count(string(rest), `"id"`) != 1 {
			t.Errorf("%s: %q, %v", part, rest, err)
		}
	}
}

func TestPeerSaysWhoItIs(t *testing.T) {
	c, _ := sidecarOf(Config{}, nil, nil)
	w := get(New(c), "/peer")
	if want := `{"node_id":"node-1","instance":"i","store_id":"s","folder_id":"","shared":true,"version":"1"}` + "\n"; w.Code != 200 ||
		w.Body.String() != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = get(New(c), "/peers")
	if want := `{"peers":[{"node_id":"node-1","address":"","store_id":"s","self":true,"reachable":true}]}` + "\n"; w.Code != 200 ||
		w.Body.String() != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	c.Fleet = &fakeFleet{members: []Member{{NodeID: "node-2", Address: "x:1", StoreID: "s", Reason: "no answer"}}}
	if w = get(New(c), "/peers"); !strings.Contains(w.Body.String(), `"reachable":false,"reason":"no answer"`) {
		t.Errorf("%s", w.Body)
	}
}

func postIDs(h http.Handler, target, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", target, strings.NewReader(body)))
	return w
}

// TestAnEmptySpoolSaysSo spares later pages to ask it for ids.
func TestAnEmptySpoolSaysSo(t *testing.T) {
	c, closed := sidecarOf(Config{}, []*eventlog.Record{record(1, "a", "")}, nil)
	full, _ := sidecarOf(Config{}, nil, []*eventlog.Record{record(1, "a", "")})
	for _, tc := range []struct {
		config Config
		target string
		want   string
	}{
		{c, "/export?topic=orders&part=spool", "1"},
		{c, "/export?topic=other&part=spool", "1"},
		{c, "/export?topic=orders&part=log", ""},
		{full, "/export?topic=orders&part=spool&key=nobody", ""},
	} {
		if w := get(New(tc.config), tc.target); w.Code != 200 || w.Header().Get(HeaderEmpty) != tc.want {
			t.Errorf("%s: %d, %q", tc.target, w.Code, w.Header().Get(HeaderEmpty))
		}
	}
	if *closed != 1 {
		t.Errorf("%d snapshots were closed, want 1", *closed)
	}
}

func TestPeerIDs(t *testing.T) {
	c, _ := sidecarOf(Config{}, []*eventlog.Record{record(1, "a", ""), record(3, "c", "k")}, []*eventlog.Record{record(2, "b", "k")})
	h := New(c)
	for _, tc := range []struct{ query, body, want string }{
		{"topic=orders", `{"ids":["a","b","c","none"]}`, `[1,2,3,null]`},
		{"topic=orders&key=k", `{"ids":["a","b","c"]}`, `[null,2,3]`},
		{"topic=orders&part=log", `{"ids":["a","b","c"]}`, `[1,null,3]`},
		{"topic=orders&part=spool", `{"ids":["a","b","c"]}`, `[null,2,null]`},
		{"topic=orders&part=spool&key=other", `{"ids":["b"]}`, `[null]`},
		{"topic=orders", `{"ids":[]}`, `[]`},
		{"topic=orders", `{}`, `[]`},
		{"topic=other", `{"ids":["a"]}`, `[null]`},
	} {
		if w := postIDs(h, "/peer/ids?"+tc.query, tc.body); w.Code != 200 || w.Body.String() != `{"ts":`+tc.want+"}\n" {
			t.Errorf("%s %s: %d %s", tc.query, tc.body, w.Code, w.Body)
		}
	}
	most, err := json.Marshal(PeerIDs{IDs: strings.Split(strings.Repeat("x,", MaxPeerIDs)+"x", ",")})
	require.NoError(t, err)
	for _, tc := range []struct {
		query, body string
		status      int
		says        string
	}{
		{"", `{"ids":[]}`, 400, "topic"},
		{"topic=a/b", `{"ids":[]}`, 400, "topic"},
		{"topic=orders&key=", `{"ids":[]}`, 400, "key"},
		{"topic=orders&part=all", `{"ids":[]}`, 400, "part"},
		{"topic=orders", `[]`, 400, "object with ids"},
		{"topic=orders", `{"ids":`, 400, "bad_json"},
		{"topic=orders", string(most), 400, "1001"},
		{"topic=orders", `{"ids":["` + strings.Repeat("x", maxPeerIDsBytes) + `"]}`, 413, "bytes"},
	} {
		if w := postIDs(h, "/peer/ids?"+tc.query, tc.body); w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) {
			t.Errorf("%s %.40s: %d %s", tc.query, tc.body, w.Code, w.Body)
		}
	}
	if w := get(h, "/peer/ids?topic=orders"); w.Code != 405 {
		t.Errorf("GET: %d", w.Code)
	}
}

// TestWhoIsAPeer asks with every token where the file of --auth-config is given and where it is
// not.
func TestWhoIsAPeer(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	log := slog.New(slog.DiscardHandler)
	write("peers", "token-of-the-peers\n")
	open := func(document string) *access.Access {
		a, err := access.Open(write("auth", document), access.Sidecar, log)
		require.NoError(t, err)
		return a
	}
	const peers = "peers: {token_file: peers}\n"
	clients := fmt.Sprintf("tokens:\n - {name: app, sha256: %x, publish: ['*']}\n - {name: audit, sha256: %x, replay: [orders]}\n",
		sha256.Sum256([]byte("app")), sha256.Sum256([]byte("audit")))
	tokens, auth, both := open(peers), open(clients), open(clients+peers)
	const internal, public = "/export?topic=orders&part=log", "/export?topic=orders"
	all := []string{"", "wrong", "app", "audit", "token-of-the-peers"}
	for _, tc := range []struct {
		name     string
		config   Config
		target   string
		statuses [5]int // of all
	}{
		{"nothing", Config{}, "/peer", [5]int{200, 200, 200, 200, 200}},
		{"nothing", Config{}, internal, [5]int{200, 200, 200, 200, 200}},
		{"token", Config{Access: tokens}, "/peer", [5]int{401, 401, 401, 401, 200}},
		{"token", Config{Access: tokens}, internal, [5]int{401, 401, 401, 401, 200}},
		{"token", Config{Access: tokens}, public, [5]int{200, 200, 200, 200, 200}},
		{"token", Config{Access: tokens}, "/peers", [5]int{200, 200, 200, 200, 200}},
		{"file", Config{Access: auth}, "/peer", [5]int{401, 401, 403, 200, 401}},
		{"file", Config{Access: auth}, "/peers", [5]int{401, 401, 403, 200, 401}},
		{"both", Config{Access: both}, "/peer", [5]int{401, 401, 403, 200, 200}},
		{"both", Config{Access: both}, internal, [5]int{401, 401, 403, 200, 200}},
		{"both", Config{Access: both}, "/export?topic=payments&part=spool", [5]int{401, 401, 403, 403, 200}},
		{"both", Config{Access: both}, public, [5]int{401, 401, 403, 200, 200}},
	} {
		c, _ := sidecarOf(tc.config, nil, nil)
		for i, token := range all {
			r := httptest.NewRequest("GET", tc.target, nil)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			New(c).ServeHTTP(w, r)
			if w.Code != tc.statuses[i] || w.Code == 401 && w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("%s, %s as %q: %d %s, want %d", tc.name, tc.target, token, w.Code, w.Body, tc.statuses[i])
			}
		}
	}
	c, _ := sidecarOf(Config{Access: tokens}, nil, nil)
	if w := postIDs(New(c), "/peer/ids?topic=orders", `{"ids":[]}`); w.Code != 401 {
		t.Errorf("ids without a token: %d", w.Code)
	}
}
