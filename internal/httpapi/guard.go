package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Guard refuses requests of web pages. A page that a visitor opens may send requests to the
// visitor's localhost. The browser then sends the page's origin: Origin, and Sec-Fetch-Site also if
// a request has no Origin, as those for images, frames, links and all else that a page loads by
// GET. If the page's own name was made to resolve to localhost (DNS rebinding), Host has that name.
//
// An address that a person typed, or opened in another program, is allowed: such a request has
// Sec-Fetch-Site: none. A page can still cause it by a redirect, so a GET with an effect needs
// [CheckNavigation] too.
type Guard struct {
	// AllowedOrigins are the origins whose pages may use the listener, as scheme://host[:port].
	// Every other Origin is refused, also "null".
	AllowedOrigins []string
	// Addr is the listener's bound address. On a loopback address Host must name this machine; the
	// program cannot know the names of a listener for other machines, and a unix socket has none.
	Addr net.Addr
	// SameOrigin allows the listener's own pages: their Origin has the host and port of the
	// request.
	SameOrigin bool
	// Pages reports the paths of pages, to which links of other origins may lead; nil: none.
	Pages func(path string) bool
}

// Validate returns which of AllowedOrigins is not an origin.
func (g Guard) Validate() error {
	for _, o := range g.AllowedOrigins {
		if _, ok := CanonicalOrigin(o); !ok {
			return fmt.Errorf("allowed origin %q: want scheme://host or scheme://host:port, without a path", o)
		}
	}
	return nil
}

// Handler passes allowed requests to next, refuses the others with 403, and implements CORS for the
// allowed origins: it answers their preflight requests and lets their pages read the answers.
func (g Guard) Handler(next http.Handler) http.Handler {
	allowed := make(map[string]bool, len(g.AllowedOrigins))
	for _, o := range g.AllowedOrigins {
		if c, ok := CanonicalOrigin(o); ok {
			allowed[c] = true
		}
	}
	local := isLoopback(g.Addr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A request of HTTP/1.0 without a Host is no browser's, so no name was rebound to this machine.
		if local && !namesThisMachine(r.Host) && (r.Host != "" || r.ProtoAtLeast(1, 1)) {
			refuse(w, r, wire.Errorf(wire.Forbidden, "Host %q is refused: this listener is on a loopback address and is reached as localhost; "+
				"to be reached by other names it has to listen on another address", r.Host))
			return
		}
		if len(allowed) > 0 {
			w.Header().Add("Vary", "Origin")
		}
		origins := r.Header["Origin"]
		switch {
		case len(origins) == 1 && originIn(allowed, origins[0]):
			if allowCORS(w.Header(), r) {
				w.WriteHeader(http.StatusNoContent)
				return
			}
		case len(origins) > 0 && !(g.SameOrigin && len(origins) == 1 && sameOrigin(origins[0], r.Host)):
			refuse(w, r, wire.Errorf(wire.Forbidden, "Origin %q is refused: %s", strings.Join(origins, ", "), g.allowedPages()))
			return
		case fromElsewhere(r.Header) && !g.leadsToPage(r):
			refuse(w, r, wire.Errorf(wire.Forbidden, "Sec-Fetch-Site %q is refused: %s; an address that a user types is allowed",
				strings.Join(r.Header["Sec-Fetch-Site"], ", "), g.allowedPages()))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowedPages names the pages that may use the listener.
func (g Guard) allowedPages() string {
	pages := "none"
	if len(g.AllowedOrigins) > 0 {
		pages = strings.Join(g.AllowedOrigins, ", ")
	}
	if g.SameOrigin {
		pages += ", and its own"
	}
	return "the web pages that may use this listener are those of --allowed-origins: " + pages
}

// fromElsewhere reports whether a browser sends a request for a page of another origin. Browsers
// before 2023, and other clients, do not tell.
func fromElsewhere(h http.Header) bool {
	site := h["Sec-Fetch-Site"]
	return len(site) > 1 || len(site) == 1 && site[0] != "same-origin" && site[0] != "none"
}

// leadsToPage reports whether a request is that of a link, to a page that is not shown in a frame.
func (g Guard) leadsToPage(r *http.Request) bool {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	opensPage := isNavigation(r.Header) && r.Header.Get("Sec-Fetch-Dest") == "document"
	return g.Pages != nil && reads && opensPage && g.Pages(r.URL.Path)
}

func isNavigation(h http.Header) bool { return h.Get("Sec-Fetch-Mode") == "navigate" }

// CheckNavigation refuses a request that a browser sends to show its answer, as a page or as a part
// of one. It is for a GET with an effect: a page may redirect the browser there, and such a request
// looks like a typed address. The error is a *wire.Error with forbidden that names the effect.
func CheckNavigation(r *http.Request, what string) error {
	if !isNavigation(r.Header) && !isForPage(r.Header) {
		return nil
	}
	return wire.Errorf(wire.Forbidden, "%s has an effect and cannot be opened as a page in a browser, nor as an image, frame or script: "+
		"use a program, such as curl, or fetch and EventSource of a page of --allowed-origins", what)
}

// isForPage reports whether the Referer alone shows that a request is for a page, as in a browser
// before 2023: it sends no Sec-Fetch-Site, and no Origin with what a page loads by GET.
func isForPage(h http.Header) bool {
	return len(h["Referer"]) > 0 && len(h["Origin"]) == 0 && len(h["Sec-Fetch-Site"]) == 0
}

// allowCORS sets the headers that a browser needs for the page of an allowed origin, and reports
// whether r was a preflight request, which they answer completely.
func allowCORS(h http.Header, r *http.Request) (preflight bool) {
	h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	method := r.Header.Get("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || method == "" {
		h.Set("Access-Control-Expose-Headers", "*")
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE")
	// The origin is echoed, since "*" would not cover Authorization.
	if names := r.Header.Values("Access-Control-Request-Headers"); len(names) > 0 {
		h.Set("Access-Control-Allow-Headers", strings.Join(names, ", "))
	}
	// Browsers send this before a public page may reach a private address.
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	return true
}

// sameOrigin reports whether a page of that origin has the host of the request. Schemes are not
// compared: a proxy in front may have terminated TLS.
func sameOrigin(origin, host string) bool {
	c, ok := CanonicalOrigin(origin)
	if !ok {
		return false
	}
	scheme, _, _ := strings.Cut(c, "://")
	h, ok := CanonicalOrigin(scheme + "://" + host)
	return ok && h == c
}

func originIn(allowed map[string]bool, origin string) bool {
	c, ok := CanonicalOrigin(origin)
	return ok && allowed[c]
}

// CanonicalOrigin returns the origin in lower case and without its scheme's default port, as
// browsers send it; an operator may write it otherwise. ok is false if s is no origin.
func CanonicalOrigin(s string) (origin string, ok bool) {
	u, err := url.Parse(strings.ToLower(s))
	if err != nil || u.Hostname() == "" || strings.ContainsAny(u.Host, "*") {
		return "", false
	}
	if bare := (url.URL{Scheme: u.Scheme, Host: u.Host}); u.Scheme == "" || *u != bare || strings.Contains(s, "#") {
		return "", false // it has more than an origin
	}
	port := u.Port()
	if port == "" || u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		return u.Scheme + "://" + strings.TrimSuffix(u.Host, ":"+port), true
	}
	return u.Scheme + "://" + u.Host, true
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// namesThisMachine reports whether a Host header is localhost or a loopback address, with any port:
// the listener may be reached through a forwarded one. No other DNS name is allowed, since its
// owner decides its address.
func namesThisMachine(host string) bool {
	name, ok := cutPort(host)
	if !ok {
		return false
	}
	if bracketed, ok := strings.CutPrefix(name, "["); ok {
		name, ok = strings.CutSuffix(bracketed, "]")
		ip, err := netip.ParseAddr(name)
		return ok && err == nil && ip.Is6() && ip.Unmap().IsLoopback()
	}
	if strings.EqualFold(strings.TrimSuffix(name, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Is4() && ip.IsLoopback()
}

// cutPort removes the port from host[:port]; ok is false if the port is no number.
func cutPort(host string) (name string, ok bool) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || strings.HasSuffix(host, "]") {
		return host, true
	}
	return host[:i], strings.Trim(host[i+1:], "0123456789") == ""
}
