package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Guard keeps web pages out. A page that a visitor opens may send requests to
// the visitor's localhost; the browser then says where the page comes from
// (Origin, and Sec-Fetch-Site also where a request has no Origin: images,
// frames, links and whatever else a page loads by GET), or, when the page's own
// name was made to resolve to localhost (DNS rebinding), which name it believes
// it is talking to (Host).
//
// An address that a person typed, or opened in another program, passes: such a
// request says Sec-Fetch-Site: none. A page can still be behind it, by a
// redirect, so that a GET with an effect asks [CheckNavigation] too.
type Guard struct {
	// AllowedOrigins are the origins whose pages may use the listener, as
	// scheme://host[:port]. Every other Origin is refused, "null" too.
	AllowedOrigins []string
	// Addr is what the listener is bound to. On a loopback address Host must
	// name this machine; a listener that others are meant to reach goes by
	// names that the program cannot know, and a unix socket by none.
	Addr net.Addr
	// SameOrigin lets the pages that the listener serves itself use it: their
	// Origin has the host and port that the request was sent to.
	SameOrigin bool
	// Pages tells the paths of pages, to which links from elsewhere may lead;
	// nil for none.
	Pages func(path string) bool
}

// Validate says which of AllowedOrigins is not an origin.
func (g Guard) Validate() error {
	for _, o := range g.AllowedOrigins {
		if _, ok := CanonicalOrigin(o); !ok {
			return fmt.Errorf("allowed origin %q: want scheme://host or scheme://host:port, without a path", o)
		}
	}
	return nil
}

// Handler lets the requests that pass the guard through to next, refuses the
// others with 403, and speaks CORS with the allowed origins: it answers their
// preflight requests and lets their pages read the replies.
func (g Guard) Handler(next http.Handler) http.Handler {
	allowed := make(map[string]bool, len(g.AllowedOrigins))
	for _, o := range g.AllowedOrigins {
		if c, ok := CanonicalOrigin(o); ok {
			allowed[c] = true
		}
	}
	local := isLoopback(g.Addr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local && !namesThisMachine(r.Host) {
			refuse(w, wire.Errorf(wire.Forbidden, "Host %q is refused: this listener is reached as localhost or a loopback address", r.Host))
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
			refuse(w, wire.Errorf(wire.Forbidden, "Origin %q is refused: %s", strings.Join(origins, ", "), g.allowedPages()))
			return
		case fromElsewhere(r.Header) && !g.leadsToPage(r):
			refuse(w, wire.Errorf(wire.Forbidden, "Sec-Fetch-Site %q is refused: %s; an address that is typed passes",
				strings.Join(r.Header["Sec-Fetch-Site"], ", "), g.allowedPages()))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowedPages says which pages may use the listener.
func (g Guard) allowedPages() string {
	pages := "none"
	if len(g.AllowedOrigins) > 0 {
		pages = strings.Join(g.AllowedOrigins, ", ")
	}
	if g.SameOrigin {
		pages += ", and its own"
	}
	return "the web pages that may use this listener are those of the allowed origins: " + pages
}

// fromElsewhere says whether a browser makes a request for a page of another
// origin. Browsers before 2023, and clients that are no browsers, do not tell.
func fromElsewhere(h http.Header) bool {
	site := h["Sec-Fetch-Site"]
	return len(site) > 1 || len(site) == 1 && site[0] != "same-origin" && site[0] != "none"
}

// leadsToPage says whether a request is a link's, to a page that is shown by
// itself and not in a frame.
func (g Guard) leadsToPage(r *http.Request) bool {
	return g.Pages != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) && isNavigation(r.Header) &&
		r.Header.Get("Sec-Fetch-Dest") == "document" && g.Pages(r.URL.Path)
}

func isNavigation(h http.Header) bool { return h.Get("Sec-Fetch-Mode") == "navigate" }

// CheckNavigation refuses a request that a browser makes to show its answer. It
// is for a GET with an effect: a page may lead the browser there by a redirect,
// and then nothing tells it from an address that was typed. The error is a
// *wire.Error with forbidden that names what has the effect.
func CheckNavigation(r *http.Request, what string) error {
	if !isNavigation(r.Header) {
		return nil
	}
	return wire.Errorf(wire.Forbidden, "%s has an effect and is no page to open in a browser: use a program, such as curl, or fetch and EventSource of a page of an allowed origin", what)
}

// allowCORS sets what a browser needs to see before it lets the page of an
// allowed origin go on, and reports whether r was a preflight request, which
// has its whole answer with that.
func allowCORS(h http.Header, r *http.Request) (preflight bool) {
	h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	method := r.Header.Get("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || method == "" {
		h.Set("Access-Control-Expose-Headers", "*")
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE")
	// Echoed, since "*" would not cover Authorization.
	if names := r.Header.Values("Access-Control-Request-Headers"); len(names) > 0 {
		h.Set("Access-Control-Allow-Headers", strings.Join(names, ", "))
	}
	// Browsers ask this before a public page may reach a private address.
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	return true
}

// sameOrigin says whether a page of that origin was served under the name that
// the request was sent to. Schemes are not compared: a proxy in front may have
// ended TLS.
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

// CanonicalOrigin is the origin in lower case and without its scheme's default
// port, as browsers send it; an operator may write it otherwise. ok is false
// where s is no origin.
func CanonicalOrigin(s string) (origin string, ok bool) {
	u, err := url.Parse(strings.ToLower(s))
	if err != nil || u.Scheme == "" || u.Hostname() == "" || u.User != nil ||
		u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#") {
		return "", false
	}
	if strings.Contains(u.Host, "*") {
		return "", false
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

// namesThisMachine says whether a Host header is localhost or a loopback
// address, with whatever port: the listener may be reached through a forwarded
// one. No DNS name but localhost passes, for who owns a name decides where it
// leads.
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

// cutPort removes the port from host[:port]; ok is false when what stands there
// is no number.
func cutPort(host string) (name string, ok bool) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || strings.HasSuffix(host, "]") {
		return host, true
	}
	port := host[i+1:]
	isDigit := func(c byte) bool { return '0' <= c && c <= '9' }
	notDigit := func(c byte) bool { return !isDigit(c) }
	return host[:i], !slices.ContainsFunc([]byte(port), notDigit)
}
