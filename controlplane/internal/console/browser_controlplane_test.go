package console_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/console"
	"github.com/sluice-bus/sluice/controlplane/internal/rest"
	"github.com/sluice-bus/sluice/controlplane/internal/store/boltstore"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// startControlPlane serves the console with the API and the policies of the program, and with a
// fleet that is made up. It returns its URL.
func startControlPlane(t *testing.T, access rest.Access) string {
	t.Helper()
	store, err := boltstore.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	at := time.Now().Add(-75 * time.Hour)
	seed(t, catalog.Config{Store: store, Now: func() time.Time { at = at.Add(7 * time.Hour); return at }})
	policies, err := catalog.Open(t.Context(), catalog.Config{Store: store})
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(nil)
	sidecars := newMadeUpFleet(policies)
	stopping := make(chan struct{})
	server.Config.Handler = rest.New(rest.Config{
		Name:     "here",
		Catalog:  policies,
		Registry: sidecars,
		Health:   sidecars,
		Usage:    sidecars,
		Forward:  sidecars,
		Stopping: stopping,
		Access:   access,
		Console:  console.Handler(),
		Metrics:  http.NotFoundHandler(),
		Status:   func() any { return nil },
		Ready:    func() error { return nil },
		Forget:   sidecars.forget,
		Addr:     server.Listener.Addr(),
		Logger:   slog.New(slog.DiscardHandler),
	})
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stopping) })
	return server.URL
}

// past is a history to look at.
var past = []struct{ name, by, doc string }{
	{"*", "seed", `{"connection":{"rate":500,"burst":500}}`},
	{"orders.*", "seed", `{"publish":{"rate":200,"burst":400},"retention":{"ttl":"720h"},` +
		`"groups":{"audit":{"paused":true},"billing":{"rate":50,"max_inflight":200}}}`},
	{"orders.created", "maria", `{"publish":{"rate":120,"burst":120}}`},
	{"orders.created", "jonas", `{"publish":{"rate":80,"burst":120}}`},
	{"orders.created", "maria", `{"publish":{"rate":100,"burst":100}}`},
	{"payments.settled", "jonas", `{"publish":{"rate":150,"burst":150,"scope":"fleet"},"durability":{"write_concern":"majority"}}`},
	{"telemetry.*", "ops", `{"publish":{"rate":900,"burst":2000,"on_limit":"wait","max_wait":"250ms"},"partitions":32,` +
		`"durability":{"spool_max_bytes":9223372036854775807}}`},
	{"legacy.import", "ops", `{"paused":true}`},
}

func seed(t *testing.T, c catalog.Config) {
	t.Helper()
	policies, err := catalog.Open(t.Context(), c)
	require.NoError(t, err)
	for _, s := range past {
		p, err := policy.ParsePolicy([]byte(s.doc))
		require.NoError(t, err)
		p.Name = s.name
		if _, err := policies.Put(t.Context(), catalog.Author{Name: s.by, Admin: true}, p, nil, false); err != nil {
			t.Fatal(err)
		}
	}
}

// everybody lets all in as administrators.
type everybody struct{}

func (everybody) Identify(*http.Request) (rest.Identity, error) {
	return rest.Identity{Name: "anonymous", Role: "admin"}, nil
}

func (everybody) Challenge(http.ResponseWriter, *http.Request, error) {}

// tokens are the roles of those who have one.
type tokens map[string]string

func (tokens tokens) Identify(r *http.Request) (rest.Identity, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	role, ok := tokens[token]
	if !ok {
		return rest.Identity{}, wire.Errorf(wire.Unauthorized, "no valid token")
	}
	return rest.Identity{Name: "some " + role, Role: role, Verified: true}, nil
}

func (tokens) Challenge(w http.ResponseWriter, r *http.Request, err error) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
	httpapi.WriteError(w, r, err, slog.New(slog.DiscardHandler))
}
