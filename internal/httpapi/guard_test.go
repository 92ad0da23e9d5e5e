package httpapi

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

var (
	loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7070}
	public   = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7070}
	anyAddr  = &net.TCPAddr{IP: net.IPv6unspecified, Port: 7070}
	socket   = &net.UnixAddr{Name: "/run/sluice", Net: "unix"}
)

// ask sends one request through the guard; passed says whether it came out.
func ask(g Guard, method, host string, header http.Header) (w *httptest.ResponseRecorder, passed bool) {
	r := httptest.NewRequest(method, "/x", nil)
	r.Host = host
	r.Header = header
	w = httptest.NewRecorder()
	g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })).ServeHTTP(w, r)
	return w, passed
}

func TestGuardHost(t *testing.T) {
	for _, tc := range []struct {
		addr net.Addr
		host string
		pass bool
	}{
		{loopback, "127.0.0.1:7070", true},
		{loopback, "127.0.0.1", true},
		{loopback, "127.9.9.9:1", true},
		{loopback, "localhost:7070", true},
		{loopback, "localhost:", true},
		{loopback, "LocalHost", true},
		{loopback, "localhost.:7070", true},
		{loopback, "[::1]:7070", true},
		{loopback, "[::1]", true},
		{loopback, "[::ffff:127.0.0.1]:7070", true},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 1}, "[::1]:1", true},

		{loopback, "", false},
		{loopback, ":7070", false},
		{loopback, "evil.example:7070", false},
		{loopback, "localhost.evil.example", false},
		{loopback, "evil.localhost", false},
		{loopback, "localhost..", false},
		{loopback, "127.0.0.1.evil.example", false},
		{loopback, "127.0.0.1:7070@evil.example", false},
		{loopback, "127.1", false},
		{loopback, "0.0.0.0:7070", false},
		{loopback, "192.0.2.1:7070", false},
		{loopback, "[::2]:7070", false},
		{loopback, "::1", false},
		{loopback, "[::1", false},
		{loopback, "[127.0.0.1]", false},
		{loopback, "localhost:http", false},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 1}, "evil.example", false},

		{public, "sidecar.example", true},
		{anyAddr, "sidecar.example", true},
		{socket, "anything", true},
		{socket, "", true},
	} {
		w, passed := ask(Guard{Addr: tc.addr}, "GET", tc.host, http.Header{})
		if passed != tc.pass {
			t.Errorf("%s, Host %q: passed %t", tc.addr, tc.host, passed)
		}
		if !passed && (w.Code != 403 || readReply(t, w).Code != "forbidden") {
			t.Errorf("%s, Host %q: %d %s", tc.addr, tc.host, w.Code, w.Body)
		}
	}
}

// Health checks of HTTP/1.0 have no Host, and come from no browser.
func TestGuardLetsHTTP10WithoutHost(t *testing.T) {
	for host, pass := range map[string]bool{"": true, "evil.example": false} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host, r.ProtoMajor, r.ProtoMinor, r.Proto = host, 1, 0, "HTTP/1.0"
		w := httptest.NewRecorder()
		Guard{Addr: loopback}.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if (w.Code == 200) != pass {
			t.Errorf("Host %q: %d", host, w.Code)
		}
	}
}

func TestGuardOrigin(t *testing.T) {
	g := Guard{AllowedOrigins: []string{"https://Console.example", "http://localhost:3000", "http://plain.example:80"}}
	require.NoError(t, g.Validate())
	for _, tc := range []struct {
		origins []string
		pass    bool
	}{
		{nil, true},
		{[]string{"https://console.example"}, true},
		{[]string{"https://console.example:443"}, true},
		{[]string{"http://localhost:3000"}, true},
		{[]string{"http://plain.example"}, true},
		{[]string{"http://console.example"}, false},
		{[]string{"https://console.example:444"}, false},
		{[]string{"https://console.example.evil.example"}, false},
		{[]string{"https://evil.example"}, false},
		{[]string{"http://127.0.0.1:7070"}, false},
		{[]string{"null"}, false},
		{[]string{""}, false},
		{[]string{"https://console.example", "https://evil.example"}, false},
		{[]string{"https://console.example/"}, false},
	} {
		for _, addr := range []net.Addr{loopback, public, socket} {
			g.Addr = addr
			w, passed := ask(g, "POST", "localhost", http.Header{"Origin": tc.origins})
			if passed != tc.pass {
				t.Errorf("%s, Origin %q: passed %t", addr, tc.origins, passed)
			}
			if !passed && w.Code != 403 {
				t.Errorf("%s, Origin %q: status %d", addr, tc.origins, w.Code)
			}
			if got := w.Header().Get("Access-Control-Allow-Origin"); (got != "") != (passed && len(tc.origins) > 0) {
				t.Errorf("Origin %q: Access-Control-Allow-Origin %q", tc.origins, got)
			}
		}
	}
}

func TestGuardSameOrigin(t *testing.T) {
	for _, tc := range []struct {
		host    string
		origins []string
		pass    bool
	}{
		{"127.0.0.1:7080", []string{"http://127.0.0.1:7080"}, true},
		{"LocalHost:7080", []string{"http://localhost:7080"}, true},
		{"localhost:7080", []string{"https://localhost:7080"}, true}, // a proxy ended TLS
		{"localhost", []string{"http://localhost"}, true},
		{"localhost:80", []string{"http://localhost"}, true},
		{"localhost:443", []string{"https://localhost"}, true},
		{"[::1]:7080", []string{"http://[::1]:7080"}, true},

		{"localhost:7080", []string{"http://localhost:3000"}, false},
		{"localhost:7080", []string{"http://127.0.0.1:7080"}, false},
		{"localhost:7080", []string{"http://localhost"}, false},
		{"localhost:7080", []string{"http://evil.example"}, false},
		{"localhost:7080", []string{"null"}, false},
		{"localhost:7080", []string{"http://localhost:7080/"}, false},
		{"localhost:7080", []string{"http://localhost:7080", "http://localhost:7080"}, false},
		{"evil.example:7080", []string{"http://evil.example:7080"}, false}, // a rebound name
	} {
		w, passed := ask(Guard{Addr: loopback, SameOrigin: true}, "PUT", tc.host, http.Header{"Origin": tc.origins})
		if passed != tc.pass || !passed && w.Code != 403 {
			t.Errorf("Host %q, Origin %q: passed %t, status %d", tc.host, tc.origins, passed, w.Code)
		}
		if w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("Host %q, Origin %q: CORS headers to a page of the listener's own", tc.host, tc.origins)
		}
		if _, passed := ask(Guard{Addr: loopback}, "PUT", tc.host, http.Header{"Origin": tc.origins}); passed {
			t.Errorf("Host %q, Origin %q passed a guard that does not know the same origin", tc.host, tc.origins)
		}
	}
	if _, passed := ask(Guard{Addr: public, SameOrigin: true}, "PUT", "sluice.example",
		http.Header{"Origin": {"https://sluice.example"}}); !passed {
		t.Error("the console's own page was refused on a public listener")
	}
}

func TestGuardPreflight(t *testing.T) {
	g := Guard{AllowedOrigins: []string{"https://console.example"}, Addr: loopback}
	header := func(origin string) http.Header {
		return http.Header{
			"Origin":                                 {origin},
			"Access-Control-Request-Method":          {"POST"},
			"Access-Control-Request-Headers":         {"sluice-key,authorization"},
			"Access-Control-Request-Private-Network": {"true"},
		}
	}
	w, passed := ask(g, "OPTIONS", "localhost:7070", header("https://console.example"))
	if passed || w.Code != 204 {
		t.Errorf("passed %t, status %d", passed, w.Code)
	}
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin":          "https://console.example",
		"Access-Control-Allow-Methods":         "GET, HEAD, POST, PUT, DELETE",
		"Access-Control-Allow-Headers":         "sluice-key,authorization",
		"Access-Control-Allow-Private-Network": "true",
		"Vary":                                 "Origin",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if w, _ := ask(g, "OPTIONS", "localhost:7070", header("https://evil.example")); w.Code != 403 ||
		w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a foreign preflight: %d %v", w.Code, w.Header())
	}
	if w, _ := ask(g, "OPTIONS", "evil.example", header("https://console.example")); w.Code != 403 {
		t.Errorf("a rebound preflight: %d", w.Code)
	}
}

func TestGuardValidate(t *testing.T) {
	for _, bad := range []string{"", "*", "null", "console.example", "https://", "https://a/", "https://a/b", "https://u@a", "https://a?b",
		"https://*.a", "https://a#"} {
		if err := (Guard{AllowedOrigins: []string{bad}}).Validate(); err == nil {
			t.Errorf("%q passed for an origin", bad)
		}
	}
}

// The headers of browsers without Origin, for a page of another origin and for a typed address.
func TestGuardFetchMetadata(t *testing.T) {
	console := func(path string) bool { return path == "/x" }
	plain := Guard{Addr: loopback}
	pages := Guard{Addr: loopback, SameOrigin: true, Pages: console}
	none := Guard{Addr: loopback, SameOrigin: true, Pages: func(string) bool { return false }}
	allowing := Guard{Addr: loopback, AllowedOrigins: []string{"https://ops.example"}}
	for _, tc := range []struct {
		name   string
		guard  Guard
		method string
		header []string
		pass   bool
	}{
		{"curl", plain, "GET", nil, true},
		{"curl", plain, "POST", nil, true},
		{"an address that was typed", plain, "GET", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"document"}, true},
		{"a link of the listener's own", plain, "GET", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"document"}, true},
		{"an image", plain, "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, false},
		{"an image of another port", plain, "GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest",
			"image"}, false},
		{"a frame", plain, "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, false},
		{"a link", plain, "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, false},
		{"a HEAD", plain, "HEAD", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, false},
		{"a post without Origin", plain, "POST", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"a value that nobody knows", plain, "GET", []string{"Sec-Fetch-Site", "elsewhere"}, false},
		{"an empty value", plain, "GET", []string{"Sec-Fetch-Site", ""}, false},
		{"two values", plain, "GET", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Site", "none"}, false},

		{"an allowed origin", allowing, "GET", []string{"Origin", "https://ops.example", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode",
			"cors"}, true},
		{"an allowed origin's image, which does not say so", allowing, "GET",
			[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, false},
		{"another origin", allowing, "GET", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, false},

		{"a link to the console", pages, "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"document"}, true},
		{"a frame around the console", pages, "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"iframe"}, false},
		{"a form to the console", pages, "POST", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"document"}, false},
		{"a script of the console", pages, "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest",
			"script"}, false},
		{"a link to the API", none, "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
			false},
		{"the console's own", none, "GET", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, true},
		{"the console's own origin under another scheme", none, "PUT", []string{"Origin", "https://localhost", "Sec-Fetch-Site", "cross-site"},
			false},
	} {
		for _, addr := range []net.Addr{loopback, public, socket} {
			tc.guard.Addr = addr
			h := http.Header{}
			for i := 0; i < len(tc.header); i += 2 {
				h.Add(tc.header[i], tc.header[i+1])
			}
			w, passed := ask(tc.guard, tc.method, "localhost", h)
			if passed != tc.pass || !passed && (w.Code != 403 || !strings.Contains(w.Body.String(), "--allowed-origins")) {
				t.Errorf("%s, %s %q: passed %t, %d %s", addr, tc.method, tc.name, passed, w.Code, w.Body)
			}
		}
	}
}

func BenchmarkGuard(b *testing.B) {
	h := Guard{Addr: loopback}.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest("POST", "/v1/topics/t/events", nil)
	r.Host = "127.0.0.1:7070"
	w := httptest.NewRecorder()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
