package forward_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/forward"
	"github.com/sluice-bus/sluice/internal/tunnel/tunneltest"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// other is another control plane, which says what it is asked, or ends the connection in the middle.
func other(t *testing.T, serve http.HandlerFunc) *url.URL {
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	return at
}

func TestAnotherControlPlaneIsAskedWhereNoSidecarIsConnectedHere(t *testing.T) {
	asked := 0
	gone := other(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	has := other(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s user=%q role=%q topics=%q token=%q key=%q", r.Method, r.URL, body, r.Header.Get("Sluice-User"),
			r.Header.Get("Sluice-Role"), r.Header.Get("Sluice-Topics"), r.Header.Get("Authorization"), r.Header.Get("Sluice-Key"))
	})
	list := []*url.URL{gone, has}
	p, at := startAmong(t, forward.Planes{Of: func(store string) []*url.URL {
		if store == "a/b" {
			return list
		}
		return nil
	}})
	headers := []string{"Store", "a/b", "From", "ann", "Authorization", "Bearer secret", "Sluice-Role", "admin", "Sluice-Key", "k"}
	status, body, err := read(send(t.Context(), "GET", at+"/v1/topics/orders?x=1", "", headers...))
	require.NoError(t, err)
	want := `GET /v1/stores/a%2Fb/topics/orders?x=1  user="" role="" topics="" token="Bearer secret" key="k"`
	if status != http.StatusOK || body != want {
		t.Errorf("%d %s, want %s", status, body, want)
	}
	// A change that may have been made is not sent again.
	status, body, err = read(send(t.Context(), "POST", at+"/v1/topics/orders/events", "x", headers...))
	require.NoError(t, err)
	if status != wire.PartialFleet.HTTPStatus() || !strings.Contains(body, "may be done, or not") || asked != 1 {
		t.Errorf("%d %s, asked %d times", status, body, asked)
	}
	list = list[1:]
	status, body, err = read(send(t.Context(), "POST", at+"/replay", "x", append(headers, "Sluice-User", "ann")...))
	require.NoError(t, err)
	if want := `POST /v1/stores/a%2Fb/replay x user="ann"`; status != http.StatusOK || !strings.HasPrefix(body, want) {
		t.Errorf("%d %s, want %s", status, body, want)
	}
	// One that comes from another control plane is not passed on, and no sidecar sees whence it came.
	asked = 0
	status, body, err = read(send(t.Context(), "GET", at+"/replay", "", append(headers, "Sluice-Passed-On", "1")...))
	require.NoError(t, err)
	if status != http.StatusNotFound || asked != 0 {
		t.Errorf("%d %s, asked %d times", status, body, asked)
	}
	p.Serve(t, "node", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q", r.Header.Get("Sluice-Passed-On"))
	}))
	p.Await(t, 1)
	if _, body, _ = read(send(t.Context(), "GET", at+"/replay", "", "Store", tunneltest.Store, "Sluice-Passed-On", "1")); body != `""` {
		t.Errorf("the sidecar is told %s", body)
	}
}
