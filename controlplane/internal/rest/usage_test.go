package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/controlplane/internal/usage"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// used is the usage of two days in January and one in February.
type used struct{ err error }

func (u used) Between(_ context.Context, from, to, prefix string, tenants bool) (rows []usage.Row, _ error) {
	row := func(topic, tenant string, n int64) {
		if strings.HasPrefix(topic, prefix) && (tenants || tenant == "") {
			rows = append(rows, usage.Row{Name: usage.Name{Topic: topic, Tenant: tenant}, Accepted: n, Refused: 1})
		}
	}
	within := func(day string) bool { return from <= day && day <= to }
	if within("2026-01-30") || within("2026-01-31") {
		row("a", "", 10)
		row("a", "acme", 4)
		row("b", "", 20)
	}
	if within("2026-02-01") {
		row("a", "", 30)
	}
	return rows, u.err
}

func TestUsage(t *testing.T) {
	a := newAPI(t, func(c *Config) { c.Usage, c.Access = used{}, tokens{} })
	ask := func(query string) *struct {
		Usage []usedBody
		Next  string
	} {
		t.Helper()
		body := &struct {
			Usage []usedBody
			Next  string
		}{}
		w := a.send("GET", "/v1/usage?"+query, "", "Authorization", "Bearer viewer")
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", query, w.Code, w.Body)
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), body))
		return body
	}
	written := func(rows []usedBody) (texts []string) {
		for _, r := range rows {
			texts = append(texts, fmt.Sprint(r.Period, " ", r.Topic, r.Tenant, " ", r.Accepted))
		}
		return texts
	}
	later, end, before := "2026-02-01 a 30", []string{"2026-01-31 a 10", "2026-01-31 b 20"}, []string{"2026-01-30 a 10", "2026-01-30 b 20"}
	for query, want := range map[string][]string{
		"from=2026-01-01&to=2026-02-01":                    slices.Concat([]string{later}, end, before),
		"from=2026-01-30&to=2026-02-01&by=month":           {"2026-02 a 30", "2026-01 a 10", "2026-01 b 20"},
		"from=2026-01-31&to=2026-01-31&tenants=1&prefix=a": {"2026-01-31 a 10", "2026-01-31 aacme 4"},
		"to=2026-01-29": nil,
		"":              nil,
	} {
		if got := written(ask(query).Usage); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	const all = "from=2026-01-01&to=2026-02-01&tenants=1"
	var paged []usedBody
	for cursor := ""; ; {
		page := ask(all + "&limit=2" + cursor)
		paged = append(paged, page.Usage...)
		if page.Next == "" {
			break
		}
		cursor = "&cursor=" + page.Next
	}
	if whole := ask(all).Usage; !reflect.DeepEqual(paged, whole) || len(whole) != 7 {
		t.Errorf("in pages %q, in one %q", written(paged), written(whole))
	}
	for _, bad := range []string{
		"by=year", "from=yesterday", "to=2026-13-01", "from=2026-01-02&to=2026-01-01", "from=2024-01-01&to=2026-01-01",
		"cursor=x", "limit=0", "from=",
	} {
		refused(t, a.send("GET", "/v1/usage?"+bad, "", "Authorization", "Bearer viewer"), wire.BadRequest)
	}
	a.cfg.Usage = used{store.ErrUnavailable}
	refused(t, (&api{Handler: New(a.cfg)}).send("GET", "/v1/usage", "", "Authorization", "Bearer viewer"), wire.StoreUnavailable)
}
