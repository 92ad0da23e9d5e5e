package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/health"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7080}

// api is a handler under test and all that it stands on.
type api struct {
	http.Handler
	cfg Config
}

// newAPI serves a catalog of its own, empty, to anonymous admins. change may put something else in
// the place of any part.
func newAPI(t testing.TB, change ...func(*Config)) *api {
	stopping := make(chan struct{})
	close(stopping) // a watch ends after its first events
	cfg := Config{
		Catalog:  newCatalog(t),
		Registry: &registry{},
		Budget:   budget.New(budget.Bounds{Memory: 256 << 20, Places: budget.ControlPlanePlaces()}),
		Health:   health.NewTracker(nil),
		Usage:    used{},
		Forward:  forwarder{},
		Access:   open{},
		Console: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "console %s", r.URL.Path)
		}),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "sluice_up 1\n") }),
		Debug:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "profiles\n") }),
		Status:  func() any { return map[string]string{"version": "devel"} },
		Ready:   func() error { return nil },

		Stopping: stopping,
		Forget:   func(_ context.Context, node string) (bool, error) { return node == "gone", nil },
		Addr:     loopback,
		Logger:   slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	return &api{Handler: New(cfg), cfg: cfg}
}

// open lets everybody in without a proof.
type open struct{}

func (open) Identify(*http.Request) (Identity, error) {
	return Identity{Name: "anonymous", Role: admin}, nil
}

func (open) Challenge(http.ResponseWriter, *http.Request, error) {}

// tokens takes a role for a token.
type tokens struct{}

func (tokens) Identify(r *http.Request) (Identity, error) {
	role, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return Identity{}, wire.Errorf(wire.Unauthorized, "a token is needed")
	}
	return Identity{Name: "the " + role, Role: role, Verified: true}, nil
}

func (tokens) Challenge(w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	httpapi.WriteError(w, r, err, slog.New(slog.DiscardHandler))
}

// registry knows what it was told.
type registry struct {
	mu       sync.Mutex // of sidecars and topics, where watches look at them
	sidecars []fleet.Sidecar
	topics   []fleet.Topic
	history  bool // as it was last asked for
	health   *fleet.Health
	hours    fleet.Hours
}

// change changes what it knows while watches look at it.
func (r *registry) change(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *registry) Sidecars() []fleet.Sidecar {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sidecars)
}

func (r *registry) Using(policy string) []fleet.Sidecar {
	return slices.DeleteFunc(slices.Clone(r.sidecars), func(s fleet.Sidecar) bool {
		_, uses := s.Versions[policy]
		return !uses
	})
}
func (r *registry) Find(node string) (m fleet.Member, topics []string, found bool) {
	for _, s := range r.sidecars {
		if s.NodeID == node {
			return fleet.Member{Sidecar: s, Health: r.health}, []string{"orders"}, true
		}
	}
	return m, nil, false
}

func (r *registry) Hours(wanted func(topic string) bool) fleet.Hours {
	out := fleet.Hours{Since: r.hours.Since, Complete: r.hours.Complete, Topics: map[string][]fleet.Hour{}}
	for topic, hours := range r.hours.Topics {
		if wanted(topic) {
			out.Topics[topic] = hours
		}
	}
	return out
}

func (r *registry) Topics(history bool) []fleet.Topic {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = history
	return slices.Clone(r.topics)
}

// send makes one request; header is names and values in turn.
func (a *api) send(method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:7080"+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// want fails unless the answer has the status and, with times made "T", the body: JSON, or "" for
// none.
func want(t *testing.T, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	got := strings.TrimSuffix(timestamp.ReplaceAllString(w.Body.String(), `"T"`), "\n")
	if w.Code != status || got != body {
		t.Errorf("got  %d %s\nwant %d %s", w.Code, got, status, body)
	}
	if body != "" && w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("Content-Type %q", w.Header().Get("Content-Type"))
	}
}

var timestamp = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`)

// refused fails unless the answer is that error, in the contract's form; it returns the fields that
// the error names.
func refused(t *testing.T, w *httptest.ResponseRecorder, code wire.Code) (fields []string) {
	t.Helper()
	var e struct {
		Error  string
		Code   wire.Code
		Fields []wire.FieldError
	}
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
		t.Fatalf("%d %q: %v", w.Code, w.Body, err)
	}
	if e.Code != code || w.Code != code.HTTPStatus() || e.Error == "" {
		t.Errorf("got %d %s, want %s", w.Code, w.Body, code)
	}
	if (code == wire.InvalidPolicy) != (len(e.Fields) > 0) {
		t.Errorf("fields of %s: %v", code, e.Fields)
	}
	for _, f := range e.Fields {
		if f.Message == "" {
			t.Errorf("no message for field %q", f.Field)
		}
		fields = append(fields, f.Field)
	}
	return fields
}

var errBroken = errors.New("the secret detail of a defect")
