package gateway_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/test/require"
)

// leastRoles are the least roles of the contract's section 10; nobody may ask for any other route.
var leastRoles = map[string]access.Role{
	"GET /v1/topics":                               access.RoleViewer,
	"GET /v1/topics/{topic}":                       access.RoleViewer,
	"PUT /v1/topics/{topic}":                       access.RoleOperator,
	"DELETE /v1/topics/{topic}":                    access.RoleAdmin,
	"GET /v1/topics/{topic}/schema":                access.RoleViewer,
	"GET /v1/topics/{topic}/retention":             access.RoleViewer,
	"GET /v1/topics/{topic}/events/{id}":           access.RoleReader,
	"POST /v1/topics/{topic}/events":               access.RoleOperator,
	"DELETE /v1/topics/{topic}/events":             access.RoleAdmin,
	"GET /v1/topics/{topic}/scheduled":             access.RoleViewer,
	"DELETE /v1/topics/{topic}/scheduled/{id}":     access.RoleOperator,
	"GET /v1/topics/{topic}/groups":                access.RoleViewer,
	"GET /v1/topics/{topic}/groups/{group}":        access.RoleViewer,
	"DELETE /v1/topics/{topic}/groups/{group}":     access.RoleAdmin,
	"PUT /v1/topics/{topic}/groups/{group}/cursor": access.RoleOperator,
	"GET /v1/topics/{topic}/dlq":                   access.RoleViewer,
	"POST /v1/topics/{topic}/dlq/redrive":          access.RoleOperator,
	"POST /v1/topics/{topic}/dlq/discard":          access.RoleAdmin,
	"GET /v1/topics/{topic}/stream":                access.RoleReader,
	"GET /v1/topics/{topic}/latest":                access.RoleReader,
	"GET /replay":                                  access.RoleReader,
	"GET /export":                                  access.RoleReader,
}

var everyRole = []access.Role{"", "sidecar", access.RoleViewer, access.RoleReader, access.RoleOperator, access.RoleEditor, access.RoleAdmin}

// forPeople serves what a control plane asks of a sidecar with a section control_plane; "": it has no
// file of --auth-config.
func forPeople(t *testing.T, section string) (*gatewaytest.Sidecar, http.Handler) {
	setup := gatewaytest.Setup{}
	if section != "" {
		setup.Access = gatewaytest.AuthOf(t, "tokens: []\ncontrol_plane: "+section).Access
	}
	s := gatewaytest.Start(t, setup)
	history := replay.Config{Store: s.Log, Access: setup.Access, Logger: slog.New(slog.DiscardHandler)}
	return s, s.Gateway.ForPeople(replay.Routes(history), replay.TopicOf)
}

// ask asks for a person; headers are names and values in turn.
func ask(h http.Handler, role access.Role, topics []string, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	access.SetPerson(r.Header, "ann", role, topics)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestWhatPeopleMayAskThroughTheControlPlane(t *testing.T) {
	s, _ := forPeople(t, "")
	var about struct{ Routes []string }
	w := httptest.NewRecorder()
	s.Gateway.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &about))
	routes := about.Routes
	for _, route := range replay.Routes(replay.Config{}) {
		routes = append(routes, strings.TrimSuffix(route.Pattern, "{$}"))
	}
	for pattern := range leastRoles {
		if !slices.Contains(routes, pattern) {
			t.Errorf("there is no route %s", pattern)
		}
	}
	fill := strings.NewReplacer("{topic}", "orders", "{group}", "billing", "{id}", "one", "{pubsub}", "any")
	for section, may := range map[string][]access.Role{ // the least roles that it allows
		"":                            {access.RoleViewer, access.RoleReader, access.RoleOperator, access.RoleAdmin},
		"{read: true, operate: true}": {access.RoleViewer, access.RoleReader, access.RoleOperator, access.RoleAdmin},
		"{read: true}":                {access.RoleViewer, access.RoleReader},
		"{operate: true}":             {access.RoleOperator, access.RoleAdmin},
		"{tls: true}":                 {},
	} {
		_, h := forPeople(t, section)
		for _, pattern := range routes {
			method, path, _ := strings.Cut(pattern, " ")
			if method == "GET" {
				method = "HEAD" // a stream has no end
			}
			least, is := leastRoles[pattern]
			for _, role := range everyRole {
				status := ask(h, role, nil, method, fill.Replace(path), "").Code
				allowed := role.Includes(least) && slices.Contains(may, least)
				switch {
				case !is && status != http.StatusNotFound && status != http.StatusMethodNotAllowed:
					t.Errorf("control_plane: %s, role %q: %s is answered with %d", section, role, pattern, status)
				case is && allowed == (status == http.StatusForbidden):
					t.Errorf("control_plane: %s, role %q: %s is answered with %d", section, role, pattern, status)
				}
			}
		}
	}
}

func TestTopicsLimitAReaderAndAnOperator(t *testing.T) {
	s, h := forPeople(t, "")
	for _, topic := range []string{"orders.new", "payments"} {
		s.Publish(t, topic, "1", "key")
	}
	only := []string{"orders.*"}
	if got := ask(h, access.RoleOperator, only, "GET", "/v1/topics", "").Body.String(); strings.Contains(got, "payments") ||
		!strings.Contains(got, "orders.new") {
		t.Errorf("the list: %s", got)
	}
	for _, tc := range []struct{ method, path, body string }{
		{"GET", "/replay?topic=%", ""}, {"GET", "/export?topic=%", ""}, {"GET", "/v1/topics/%/dlq", ""}, {"GET", "/v1/topics/%/latest", ""},
		{"GET", "/v1/topics/%.dlq/latest", ""}, {"POST", "/v1/topics/%/events", "1"}, {"GET", "/v1/topics/%/scheduled", ""},
		{"PUT", "/v1/topics/%/groups/g/cursor", `{"from":"latest"}`}, {"POST", "/v1/topics/%/dlq/redrive", `{"group":"g"}`},
	} {
		for topic, forbidden := range map[string]bool{"payments": true, "orders.new": false} {
			w := ask(h, access.RoleOperator, only, tc.method, strings.ReplaceAll(tc.path, "%", topic), tc.body)
			if (w.Code == http.StatusForbidden) != forbidden {
				t.Errorf("%s %s of %s: %d %s", tc.method, tc.path, topic, w.Code, w.Body)
			}
		}
	}
	if w := ask(h, access.RoleReader, []string{}, "GET", "/replay?topic=orders.new", ""); w.Code != http.StatusForbidden {
		t.Errorf("a reader of no topic: %d %s", w.Code, w.Body)
	}
}

func TestAViewerSeesNoContent(t *testing.T) {
	const payload, key, header = "the-payload", "the-key", "the-header"
	s, h := forPeople(t, "")
	content := []string{"Sluice-Key", key, "Sluice-Header-Note", header}
	pull := func() gatewaytest.Pulled { return s.Pull(t, `{"opts":{"from":"earliest"},"wait_ms":0}`) }
	pull()
	ask(h, access.RoleOperator, nil, "POST", "/v1/topics/t/events", `"`+payload+`"`, content...)
	s.Settle(t, "nack", pull().Leases(), `"dead_letter":true`)
	ask(h, access.RoleOperator, nil, "POST", "/v1/topics/t/events", `"`+payload+`"`, append(content, "Sluice-Delay-Ms", "1000000")...)
	for _, role := range everyRole[2:] {
		for path, shown := range map[string][]string{"/v1/topics/t/dlq": {payload, key, header}, "/v1/topics/t/scheduled": {key}} {
			w := ask(h, role, nil, "GET", path, "")
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"total":1`) {
				t.Fatalf("%s %s: %d %s", role, path, w.Code, w.Body)
			}
			for _, text := range shown {
				if strings.Contains(w.Body.String(), text) != (role != access.RoleViewer) {
					t.Errorf("%s %s: %s", role, path, w.Body)
				}
			}
		}
	}
}

func TestAStreamWithAGroupIsNotForPeople(t *testing.T) {
	_, h := forPeople(t, "")
	if w := ask(h, access.RoleAdmin, nil, "HEAD", "/v1/topics/orders/stream?group=billing", ""); w.Code != http.StatusForbidden {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
