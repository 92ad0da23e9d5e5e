package forward

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// passedOn marks a request that a control plane has passed on to another one, which does not pass it on again.
const passedOn = "Sluice-Passed-On"

// Planes are the other control planes of the store of policies. The zero value is none.
type Planes struct {
	// Of are the addresses of the HTTP listeners of those to which sidecars of a store are connected; nil: there are none.
	Of func(store string) []*url.URL
	// Secure prepares a transport for those whose address is one of https; nil: the system's authorities.
	Secure func(*http.Transport)
}

// transport speaks to other control planes.
func (p Planes) transport() *http.Transport {
	dialer := net.Dialer{Timeout: dialWithin}
	t := &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: dialWithin, MaxIdleConnsPerHost: maxOfPerson,
		IdleConnTimeout: idleWithin, DisableCompression: true,
	}
	if p.Secure != nil {
		p.Secure(t)
	}
	return t
}

// errNone says that no sidecar of the store is to be asked here any more.
var errNone = errors.New("no sidecar here")

// elsewhere asks another control plane, with the person's own credentials. It is for a request that no sidecar here has got; asked says
// that one was asked.
func (f *Forwarder) elsewhere(r *http.Request, a *attempt, asked bool) (*http.Response, error) {
	if f.planes.Of != nil && a.from.Get(passedOn) == "" {
		for _, at := range f.planes.Of(a.Store) {
			answer, sent, err := f.exchange(r, f.plane, func(out *http.Request) { a.turn(out, at) })
			switch cause := context.Cause(r.Context()); {
			case err == nil:
				return answer, nil
			case cause != nil:
				return nil, cause
			case sent && !harmless(r):
				return nil, unanswered(a.Store, "the control plane at %s did not answer; what was asked may be done, or not", at.Host)
			}
		}
	}
	switch {
	case asked:
		return nil, unanswered(a.Store, "no sidecar of the store answers")
	case f.known(a.Store):
		return nil, unanswered(a.Store, "no sidecar of the store is connected to a control plane that can be asked")
	}
	return nil, wire.Errorf(wire.NotFound, "no sidecar of a store %.64q has been here", a.Store)
}

// turn makes the request to a sidecar one to a control plane again.
func (a *attempt) turn(out *http.Request, at *url.URL) {
	path := "/v1/stores/" + url.PathEscape(a.Store) + strings.TrimPrefix(a.URL.EscapedPath(), "/v1")
	plain, _ := url.PathUnescape(path) // both parts of it are escaped
	out.URL, out.Host = &url.URL{Scheme: at.Scheme, Host: at.Host, Path: plain, RawPath: path, RawQuery: a.URL.RawQuery}, at.Host
	for _, name := range []string{"Sluice-User", "Sluice-Role", "Sluice-Topics"} { // which say who asks, to sidecars
		out.Header.Del(name)
	}
	for _, name := range []string{"Authorization", "Sluice-User"} {
		if said := a.from.Values(name); len(said) > 0 {
			out.Header[name] = said
		}
	}
	out.Header.Set(passedOn, "1")
}

// harmless reports whether a request may be repeated.
func harmless(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
