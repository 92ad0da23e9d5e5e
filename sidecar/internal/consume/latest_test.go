package consume_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/consume"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/test/require"
)

// latest reads the latest events, "key=id", and the positions, "" where there are none.
func (s *sidecar) latest(t *testing.T, query string) (events []string, positions string) {
	t.Helper()
	res, text := s.Do(t, "GET", "/v1/topics/t/latest"+query, "")
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%s: %s %s", query, res.Status, text)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, line := range lines[:len(lines)-1] {
		var e struct{ ID, Key, Topic string }
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Topic != "t" {
			t.Fatalf("%s: line %q: %v", query, line, err)
		}
		events = append(events, e.Key+"="+e.ID)
	}
	slices.Sort(events)
	var last struct{ Positions json.RawMessage }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatalf("%s: last line %q: %v", query, lines[len(lines)-1], err)
	}
	return events, string(last.Positions)
}

func TestLatest(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","partitions":2,"publish":{"rate":0},"connection":{"rate":0}}]`})
	c := s.Dial(t)
	heads := map[int]uint64{}
	for i, e := range []string{"a:1", "b:1", ":1", "ab:1", "a:2", "b:null", "c:null", "c:3", "d e&f:1"} {
		key, payload, _ := strings.Cut(e, ":")
		ok := c.Ask(`{"op":"PUBLISH","topic":"t","payload":%s,"opts":{"id":"e%d","key":%q}}`, payload, i, key)
		heads[*ok.Partition] = ok.Seq
	}
	positions := fmt.Sprintf(`{"0":%d,"1":%d}`, heads[0], heads[1])
	for query, want := range map[string][]string{
		"":                                       {"a=e4", "ab=e3", "c=e7", "d e&f=e8"},
		"?prefix=a":                              {"a=e4", "ab=e3"},
		"?key=a&key=b&key=x":                     {"a=e4"},
		"?key=c&key=c":                           {"c=e7"},
		"?key=ab&key=c&key=a&prefix=ab":          {"a=e4", "ab=e3", "c=e7"},
		"?key=" + url.QueryEscape("d e&f"):       {"d e&f=e8"},
		"?prefix=nothing":                        nil,
		"?key=" + strings.Repeat("k", 512):       nil,
		"?key=a" + strings.Repeat("&key=b", 999): {"a=e4"},
	} {
		if got, at := s.latest(t, query); !slices.Equal(got, want) || at != positions {
			t.Errorf("%.80s: %q and %s; want %q and %s", query, got, at, want, positions)
		}
	}
	// Only later events follow the positions.
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"positions","positions":%s}}`, positions)
	s.Publish(t, "t", "next", "a")
	c.WantEvent("next")

	if _, text := s.Do(t, "HEAD", "/v1/topics/t/latest", ""); text != "" {
		t.Errorf("HEAD has a body: %s", text)
	}
	for query, want := range map[string]string{
		"t/latest?key=":                                   `parameter \"key\": it is given without a value`,
		"t/latest?prefix=":                                `parameter \"prefix\": it is given without a value`,
		"t/latest?prefix=a&prefix=b":                      `parameter \"prefix\": it is given twice`,
		"t/latest?key=%ff":                                "not valid UTF-8",
		"t/latest?key=" + strings.Repeat("k", 513):        "at most 512 are allowed",
		"t/latest?key=a" + strings.Repeat("&key=b", 1000): "1001 keys are named; at most 1000 are allowed",
		"a b/latest":                                      "topic",
		"none/latest":                                     "there is no topic",
	} {
		res, text := s.Do(t, "GET", "/v1/topics/"+strings.ReplaceAll(query, " ", "%20"), "")
		status := map[bool]int{true: 404, false: 400}[query == "none/latest"]
		if res.StatusCode != status || !strings.Contains(text, want) {
			t.Errorf("%.80s: %s %s; want %s", query, res.Status, text, want)
		}
	}
	if _, text := s.Do(t, "GET", "/v1/topics", ""); strings.Contains(text, `"none"`) {
		t.Errorf("asking made a topic: %s", text)
	}
}

// Answers are written page by page. A request beyond the bound of those under way is overloaded.
func TestLatestIsBounded(t *testing.T) {
	places := budget.DefaultPlaces()
	places[budget.Latest] = 1
	all := budget.New(budget.Bounds{Memory: 1 << 30, Places: places})
	s := start(t, gatewaytest.Setup{Budget: all})
	c := s.Dial(t)
	const n = 3 // times a page's bytes
	text := strings.Repeat("x", consume.LatestPage.Bytes/8)
	for i := range 8 * n {
		c.Ask(`{"op":"PUBLISH","topic":"t","payload":"%s","opts":{"key":"k%d"}}`, text, i)
	}
	if got, _ := s.latest(t, ""); len(got) != 8*n {
		t.Errorf("%d events", len(got))
	}
	other := all.Of("other")
	require.NoError(t, other.Enter(budget.Latest))
	res, body := s.Do(t, "GET", "/v1/topics/t/latest", "")
	if res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "overloaded") || res.Header.Get("Retry-After") != "1" {
		t.Errorf("%s %s", res.Status, body)
	}
	other.Leave(budget.Latest)
	if got, _ := s.latest(t, "?prefix=k1"); len(got) != 11 {
		t.Errorf("%d events", len(got))
	}
}

// Positions that retention has passed are out of range, whatever the policy says since, and the error names the
// earliest. Those that compaction has passed are not: the events were replaced by later ones.
func TestPositionsThatRetentionHasPassed(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","partitions":1,"publish":{"rate":0}},{"name":"t","retention":{"ttl":"1h"}}]`})
	for i := range 5 {
		s.Publish(t, "t", fmt.Sprintf("e%d", i), "k")
	}
	if n, _, err := s.Log.Sweep(t.Context(), "t", eventlog.Retention{UpTo: []uint64{3}}, 0, 100); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	c := s.Dial(t)
	c.Send(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"positions","positions":{"0":2}}}`)
	if f := c.Want("ERR/out_of_range"); !strings.Contains(f.Msg, "begins at seq 4") {
		t.Errorf("%+v", f)
	}
	for _, path := range []string{"GET /v1/topics/t/stream?from=positions&positions=%7B%220%22:2%7D", "POST /v1/topics/t/groups/g/pull"} {
		method, path, _ := strings.Cut(path, " ")
		if res, text := s.Do(t, method, path, `{"opts":{"from":"positions","positions":{"0":2}}}`); res.StatusCode != 416 ||
			!strings.Contains(text, "out_of_range") {
			t.Errorf("%s: %s %s", path, res.Status, text)
		}
	}
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"positions","positions":{"0":3}}}`)
	c.WantEvent("e3")
	c.WantEvent("e4")
	c.Ask(`{"op":"UNSUBSCRIBE","topic":"t"}`)
	s.Policies.Swap(gatewaytest.Snapshot(t, `[{"name":"t","retention":{"compact":true}}]`))
	c.Send(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"positions","positions":{"0":2}}}`)
	c.Want("ERR/out_of_range")
	if _, n, err := s.Log.Compact(t.Context(), "t", 0, 1, eventlog.Compaction{Limit: 100}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"positions","positions":{"0":3}}}`)
	c.WantEvent("e4")
}

func TestLatestRights(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t,
		"tokens:\n"+gatewaytest.Entry("app", "publish: [orders], subscribe: [orders]")+gatewaytest.Entry("else",
			"publish: [orders], subscribe: [other], replay: [orders], admin: [orders]")).Access})
	s.Want(t, 201, "", "POST", gatewaytest.Orders+"/events", "1", "Sluice-Key: k", "Authorization: Bearer app")
	s.Want(t, 200, `"positions"`, "GET", gatewaytest.Orders+"/latest", "", "Authorization: Bearer app")
	s.Want(t, 403, "forbidden", "GET", gatewaytest.Orders+"/latest", "", "Authorization: Bearer else")
	s.Want(t, 401, "unauthorized", "GET", gatewaytest.Orders+"/latest", "")
}
