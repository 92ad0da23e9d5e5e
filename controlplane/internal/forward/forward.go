// Package forward passes people's requests about the events of a store on to one of its sidecars, over
// the tunnel that the sidecar keeps open, and streams the answer back. The sidecar serves its own
// routes and decides what the person may do; nothing is kept here.
//
// Another sidecar of the store is asked if one does not answer, unless the request may have had an
// effect; and where none is connected, another control plane that has one.
package forward

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/tunnel"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// placeWithin is how long a request waits for a place, and dialWithin for its connection.
	placeWithin = 5 * time.Second
	dialWithin  = 3 * time.Second
	// idleWithin is how long a connection waits for another request; sidecars wait longer.
	idleWithin = time.Minute
	// stallTimeout is how long a person may take to read what is written at a time.
	stallTimeout = time.Minute

	retryAfter = time.Second
)

// Person is who asks.
type Person struct {
	Name   string
	Role   access.Role
	Topics []string // the names and prefixes that limit a reader and an operator; nil: all
}

// Request is what is asked.
type Request struct {
	Store string
	URL   url.URL // at the sidecar, without its host
	As    Person
}

// Forwarder forwards requests. It is safe for concurrent use.
type Forwarder struct {
	tunnels *tunnel.Server
	known   func(store string) bool
	places  *places
	proxy   httputil.ReverseProxy
	sidecar *http.Transport
	planes  Planes
	plane   *http.Transport
}

// New makes a Forwarder; known reports whether there is, or was, a sidecar of a store.
func New(tunnels *tunnel.Server, known func(store string) bool, planes Planes) *Forwarder {
	f := &Forwarder{tunnels: tunnels, known: known, places: newPlaces(), planes: planes, plane: planes.transport()}
	f.sidecar = &http.Transport{
		DialContext: f.dial, MaxConnsPerHost: tunnel.MaxConnections, MaxIdleConnsPerHost: tunnel.MaxConnections, MaxIdleConns: maxRequests,
		IdleConnTimeout: idleWithin, DisableCompression: true,
	}
	f.proxy = httputil.ReverseProxy{
		Rewrite: rewrite, Transport: f, FlushInterval: -1, BufferPool: &buffers, ModifyResponse: modify,
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) { underWay(r.Context()).err = err },
		ErrorLog:     log.New(io.Discard, "", 0), // a person who has left is no error, and others are told
	}
	return f
}

// Close closes the connections that are idle.
func (f *Forwarder) Close() {
	f.sidecar.CloseIdleConnections()
	f.plane.CloseIdleConnections()
}

// attempt is a request that is under way.
type attempt struct {
	Request
	from http.Header // of the person's request
	err  error       // why there is no answer
}

type attemptKey struct{}

func underWay(ctx context.Context) *attempt { return ctx.Value(attemptKey{}).(*attempt) }

// Serve answers a request with a sidecar's answer. The error, a *wire.Error, says why there is none.
func (f *Forwarder) Serve(w http.ResponseWriter, r *http.Request, what Request) error {
	release, err := f.places.take(r.Context(), what.As.Name, what.Store)
	if err != nil {
		return err
	}
	defer release()
	a := &attempt{Request: what, from: r.Header.Clone()}
	patient := newPatient(w)
	defer patient.leave()
	f.proxy.ServeHTTP(patient, r.WithContext(context.WithValue(r.Context(), attemptKey{}, a)))
	return a.err
}

// rewrite makes the request to the sidecar. What is for this control plane alone stays here.
func rewrite(p *httputil.ProxyRequest) {
	a := underWay(p.In.Context())
	p.Out.URL, p.Out.Host = &a.URL, "sidecar"
	for _, name := range []string{"Authorization", "Cookie", "Origin", "Dapr-Api-Token", passedOn} {
		p.Out.Header.Del(name)
	}
	access.SetPerson(p.Out.Header, a.As.Name, a.As.Role, a.As.Topics)
}

// modify leaves out the headers that this control plane sets itself.
func modify(answer *http.Response) error {
	answer.Header.Del("Cache-Control")
	answer.Header.Del("X-Content-Type-Options")
	return nil
}

// RoundTrip implements [http.RoundTripper] by the sidecars of the request's store.
func (f *Forwarder) RoundTrip(r *http.Request) (*http.Response, error) {
	a, tried := underWay(r.Context()), map[string]bool{}
	store := a.Store
	for {
		place, err := f.take(r.Context(), store, tried)
		switch {
		case errors.Is(err, errNone):
			return f.elsewhere(r, a, len(tried) > 0)
		case err != nil:
			return nil, err
		}
		answer, sent, err := f.ask(r, place.Key)
		if err == nil {
			answer.Body = &releasing{answer.Body, place.Release}
			return answer, nil
		}
		place.Release()
		if cause := context.Cause(r.Context()); cause != nil {
			return nil, cause
		}
		if sent && !harmless(r) {
			return nil, unanswered(store, "sidecar %q of the store did not answer; what was asked may be done, or not", place.Node)
		}
		tried[place.Key] = true
	}
}

// take takes a place of a sidecar that has not been tried.
func (f *Forwarder) take(ctx context.Context, store string, tried map[string]bool) (*tunnel.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, placeWithin)
	defer cancel()
	place, err := f.tunnels.Take(ctx, store, tried)
	switch {
	case err == nil:
		return place, nil
	case !errors.Is(err, tunnel.ErrNone):
		return nil, overloaded("the sidecars of the store have as many requests under way as they take, %d each", tunnel.MaxConnections)
	}
	return nil, errNone
}

// ask asks one sidecar. sent says that the request may have reached it.
func (f *Forwarder) ask(r *http.Request, key string) (answer *http.Response, sent bool, _ error) {
	return f.exchange(r, f.sidecar, func(out *http.Request) { out.URL.Scheme, out.URL.Host = "http", key })
}

// exchange sends what address makes of a request. sent says that it may have arrived.
func (f *Forwarder) exchange(r *http.Request, by *http.Transport, address func(*http.Request)) (answer *http.Response, sent bool, _ error) {
	var wrote atomic.Bool
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})
	out := r.Clone(ctx)
	address(out)
	if r.Body != nil {
		out.Body = io.NopCloser(r.Body) // it is still there for another sidecar, unless this one was sent it
	}
	answer, err := by.RoundTrip(out)
	return answer, wrote.Load(), err
}

func unanswered(store, format string, args ...any) error {
	e := wire.Errorf(wire.PartialFleet, format, args...)
	e.Missing = []string{store}
	return e
}

func overloaded(format string, args ...any) error {
	e := wire.Errorf(wire.Overloaded, format, args...)
	e.RetryAfter = retryAfter
	return e
}
