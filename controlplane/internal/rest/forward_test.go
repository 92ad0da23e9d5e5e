package rest

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/forward"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// forwarder answers with what is asked.
type forwarder struct{}

func (forwarder) Serve(w http.ResponseWriter, _ *http.Request, what forward.Request) error {
	w.WriteHeader(http.StatusTeapot)
	fmt.Fprintf(w, "%s %s %s %s", what.Store, what.URL.RequestURI(), what.As.Name, what.As.Role)
	return nil
}

func TestRequestsAboutAStoreAreForwarded(t *testing.T) {
	a := newAPI(t, func(c *Config) { c.Access, c.Forward = tokens{}, forwarder{} })
	for path, want := range map[string]string{
		"/v1/stores/s/topics":                           "s /v1/topics the viewer viewer",
		"/v1/stores/s/topics/a/events/%C3%A4%2Fb?x=1&y": "s /v1/topics/a/events/%C3%A4%2Fb?x=1&y the viewer viewer",
		"/v1/stores/a%2Fb/replay?topic=t":               "a/b /replay?topic=t the viewer viewer",
		"/v1/stores/s/export?topic=t":                   "s /export?topic=t the viewer viewer",
	} {
		w := a.send("GET", path, "", "Authorization", "Bearer viewer")
		if w.Code != http.StatusTeapot || w.Body.String() != want {
			t.Errorf("%s: %d %s; want %s", path, w.Code, w.Body, want)
		}
	}
	for _, path := range []string{
		"/v1/stores/s/", "/v1/stores/s/peers", "/v1/stores/s/replay/x", "/v1/stores/s/topicsx", "/v1/stores/s/topics/../peer",
	} {
		refused(t, a.send("GET", path, "", "Authorization", "Bearer admin"), wire.NotFound)
	}
	refused(t, a.send("GET", "/v1/stores/s/topics", "", "Authorization", "Bearer sidecar"), wire.Forbidden)
	refused(t, a.send("GET", "/v1/stores/s/topics", ""), wire.Unauthorized)
}
