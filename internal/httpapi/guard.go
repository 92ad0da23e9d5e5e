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
// (Origin), or, when the page's own name was made to resolve to localhost (DNS
// rebinding), which name it believes it is talking to (Host).
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
		origins := r.Header["Origin"]
		if len(allowed) > 0 {
			w.Header().Add("Vary", "Origin")
		}
		if len(origins) == 0 || g.SameOrigin && len(origins) == 1 && sameOrigin(origins[0], r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		if len(origins) > 1 || !originIn(allowed, origins[0]) {
			refuse(w, wire.Errorf(wire.Forbidden, "Origin %q is refused: it is not one of the allowed origins", strings.Join(origins, ", ")))
			return
		}
		if allowCORS(w.Header(), r) {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
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
