package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestOneURLFindsTheOthers(t *testing.T) {
	asked := 0
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			asked++
			_, _ = w.Write([]byte(`{"program":"sluice-sidecar","listeners":{"app":"127.0.0.1:7070","replay":"` +
				server.Listener.Addr().String() + `","ops":"[::]:7071"}}`))
		case "/peers":
			_, _ = w.Write([]byte(`{"peers":[{"store_id":"s"}]}`))
		}
	}))
	defer server.Close()
	h := &HTTP{AppURL: server.URL}
	defer h.CloseIdle()
	for range 2 {
		if peers, err := h.Peers(t.Context()); err != nil || len(peers) != 1 {
			t.Fatalf("%v, %v", peers, err)
		}
	}
	if found, err := h.Listeners(t.Context()); err != nil || found.Ops != "http://127.0.0.1:7071" || asked != 1 {
		t.Errorf("%+v, %v, asked %d times", found, err, asked)
	}
}

func TestBeside(t *testing.T) {
	for said, want := range map[string]string{
		"https://plane.example": "https://plane.example", "http://127.0.0.1:7999": "http://a:7999", "http://[::1]:1": "http://a:1",
		"http://10.0.0.5:7080": "http://10.0.0.5:7080", "plane:18000": "", "": "",
	} {
		if got := planeBeside("http://a:7070", said); got != want {
			t.Errorf("the control plane at %q: %s, want %s", said, got, want)
		}
	}
	for _, c := range [][3]string{
		{"http://10.0.0.7:7070", "127.0.0.1:8083", "http://10.0.0.7:8083"},
		{"https://sluice.example:443", "0.0.0.0:8083", "https://sluice.example:8083"},
		{"http://[::1]:7070", "[::]:7071", "http://[::1]:7071"},
		{"http://a:7070", "b:7071", "http://b:7071"},
		{"http://a:7070", "unix:/run/ops", "unix:/run/ops"},
		{"unix:/run/app", "127.0.0.1:7071", "http://127.0.0.1:7071"},
		{"http://a:7070", "", ""},
	} {
		if got := beside(c[0], c[1]); got != c[2] {
			t.Errorf("beside %s: %s is %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

// What is deleted is what was named: a path of dots names nothing else, and a redirect is not followed.
func TestDotsAndRedirects(t *testing.T) {
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+" "+r.URL.EscapedPath())
		http.Redirect(w, r, "/v1/topics/other", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	h := &HTTP{AppURL: server.URL}
	defer h.CloseIdle()
	if err := h.CancelScheduled(t.Context(), "orders", ".."); err == nil {
		t.Error("a redirect of a change was followed")
	} else if _, ok := err.(*wire.Error); !ok {
		t.Errorf("%T %v", err, err)
	}
	if len(paths) != 1 || paths[0] != "DELETE /v1/topics/orders/scheduled/%2E%2E" {
		t.Errorf("%q", paths)
	}
}
