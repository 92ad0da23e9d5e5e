package controlplane

import (
	"regexp"
	"strings"
	"testing"
)

// "/ is the console": a page that loads nothing from other sites, and says so.
func TestConsole(t *testing.T) {
	t.Parallel()
	p := start(t)
	a := p.call(t, "GET", "/", "")
	csp := a.Header.Get("Content-Security-Policy")
	if a.Status != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") ||
		a.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
	for _, says := range []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'",
		"base-uri 'none'"} {
		if !strings.Contains(csp, says) {
			t.Errorf("Content-Security-Policy %q does not say %s", csp, says)
		}
	}
	if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
		t.Errorf("Content-Security-Policy %q", csp)
	}
	links := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(string(a.Body), -1)
	for _, l := range links {
		if strings.Contains(l[1], "//") {
			t.Errorf("the page links elsewhere: %s", l[1])
			continue
		}
		if b := p.call(t, "GET", "/"+strings.TrimPrefix(strings.TrimPrefix(l[1], "."), "/"), ""); b.Status != 200 || len(b.Body) == 0 {
			t.Errorf("%s: %d", l[1], b.Status)
		}
	}
	if len(links) == 0 {
		t.Errorf("the page links to nothing: %s", a.Body)
	}
	if inline := regexp.MustCompile(`<script[^>]*>[^<]|<style|\son[a-z]+=|javascript:`); inline.Match(a.Body) {
		t.Errorf("the policy forbids what the page has inline: %s", a.Body)
	}
}

// A page of another site can neither read nor change: "requests that carry an Origin not in
// --allowed-origins are refused (403), as are Host values other than localhost, a loopback address
// or the listener's own on a loopback listener".
func TestForeignPages(t *testing.T) {
	t.Parallel()
	p := start(t, "--allowed-origins", "https://tools.example")
	p.put(t, "t", `{"publish":{"rate":1}}`)
	p.put(t, "t", `{"publish":{"rate":2}}`)
	before := string(p.call(t, "GET", "/v1/policies", "").Body)
	own := strings.TrimPrefix(p.URL(), "http://")
	_, port, _ := strings.Cut(own, ":")

	for _, origin := range []string{
		"http://evil.example", "https://evil.example", "null", "http://localhost:1", "http://127.0.0.1", "http://tools.example",
		"https://tools.example.evil.example", "https://tools.example:8443", "http://evil.example:" + port, "file://", "chrome-extension://abc",
	} {
		o := "Origin: " + origin
		for _, path := range []string{"/v1/policies", "/v1/policies/t", "/v1/sidecars", "/v1/topics", "/v1/status", "/metrics"} {
			a := p.call(t, "GET", path, "", o)
			refused(t, origin+" reads "+path, a, 403, "forbidden")
			if a.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s: %v", origin, a.Header)
			}
		}
		preflight := p.call(t, "OPTIONS", "/v1/policies/t", "", o, "Access-Control-Request-Method: PUT",
			"Access-Control-Request-Headers: content-type")
		if preflight.Status/100 == 2 || preflight.Header.Get("Access-Control-Allow-Origin") != "" ||
			preflight.Header.Get("Access-Control-Allow-Methods") != "" {
			t.Errorf("preflight of %s: %d %v", origin, preflight.Status, preflight.Header)
		}
		refused(t, origin+" puts", p.call(t, "PUT", "/v1/policies/t", `{}`, o, "Content-Type: application/json"), 403, "forbidden")
		refused(t, origin+" deletes", p.call(t, "DELETE", "/v1/policies/t", "", o), 403, "forbidden")
		for _, simple := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
			a := p.call(t, "POST", "/v1/policies/t/rollback", `{"version":1}`, o, "Content-Type: "+simple)
			refused(t, origin+" posts "+simple, a, 403, "forbidden")
		}
	}
	// In some browsers a form or an image sends no Origin, and another header says which site it is
	// from.
	for _, site := range []string{"cross-site", "same-site"} {
		a := p.call(t, "POST", "/v1/policies/t/rollback", `{"version":1}`, "Sec-Fetch-Site: "+site,
			"Content-Type: application/x-www-form-urlencoded")
		refused(t, site, a, 403, "forbidden")
	}
	// DNS rebinding: the page's own name leads here, so only Host tells.
	for _, host := range []string{"evil.example", "evil.example:" + port, "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1",
		"[::2]:" + port, "localhost:x"} {
		for _, path := range []string{"/", "/v1/policies", "/v1/status", "/metrics"} {
			refused(t, host+" reads "+path, p.call(t, "GET", path, "", "Host: "+host), 403, "forbidden")
		}
		a := p.call(t, "PUT", "/v1/policies/t", `{}`, "Host: "+host, "Origin: http://"+host, "Content-Type: application/json")
		refused(t, host+" puts", a, 403, "forbidden")
	}
	if after := string(p.call(t, "GET", "/v1/policies", "").Body); after != before {
		t.Errorf("a foreign page has changed %s\nto %s", before, after)
	}
	// A page of another site cannot embed the policies in an element either.
	for _, site := range []string{"cross-site", "same-site"} {
		a := p.call(t, "GET", "/v1/policies", "", "Sec-Fetch-Site: "+site, "Sec-Fetch-Mode: no-cors")
		refused(t, "an element, "+site, a, 403, "forbidden")
		if a.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%v", a.Header)
		}
	}
}

// The console's own page and pages of --allowed-origins may read and change.
func TestKnownPages(t *testing.T) {
	t.Parallel()
	p := start(t, "--allowed-origins", "https://tools.example")
	own := strings.TrimPrefix(p.URL(), "http://")
	_, port, _ := strings.Cut(own, ":")
	for i, headers := range [][]string{
		{"Origin: http://" + own, "Sec-Fetch-Site: same-origin"},
		{"Host: localhost:" + port, "Origin: http://localhost:" + port, "Sec-Fetch-Site: same-origin"},
		{"Host: [::1]:" + port, "Origin: http://[::1]:" + port, "Sec-Fetch-Site: same-origin"},
		{"Origin: https://tools.example", "Sec-Fetch-Site: cross-site"},
		{"Host: LOCALHOST"},
		nil,
	} {
		if a := p.call(t, "GET", "/v1/policies", "", headers...); a.Status != 200 {
			t.Errorf("%v reads: %d %s", headers, a.Status, a.Body)
		}
		a := p.call(t, "PUT", "/v1/policies/t", `{"partitions":`+string(rune('1'+i))+`}`, append(headers, "Content-Type: application/json")...)
		if a.Status/100 != 2 {
			t.Errorf("%v puts: %d %s", headers, a.Status, a.Body)
		}
	}
	preflight := p.call(t, "OPTIONS", "/v1/policies/t", "", "Origin: https://tools.example",
		"Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: content-type,if-match")
	if preflight.Status/100 != 2 || preflight.Header.Get("Access-Control-Allow-Origin") != "https://tools.example" ||
		!strings.Contains(preflight.Header.Get("Access-Control-Allow-Methods"), "PUT") ||
		!strings.Contains(preflight.Header.Get("Access-Control-Allow-Headers"), "if-match") {
		t.Errorf("%d %v", preflight.Status, preflight.Header)
	}
}
