package sluice

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// endpoint is one listener of a sidecar.
type endpoint struct {
	base string // of the URLs, without a slash at its end
	unix string // the socket's path, or "": what base says
	tls  *tls.Config
	by   func(ctx context.Context, network, address string) (net.Conn, error) // nil: package net's
}

// with returns the endpoint as it is reached with that.
func (e endpoint) with(c *tls.Config, by func(ctx context.Context, network, address string) (net.Conn, error)) endpoint {
	e.tls, e.by = c, by
	return e
}

// parseEndpoint reads http://host:port, https://host:port (or ws and wss, which
// mean the same), or unix:/path.
func parseEndpoint(text string) (endpoint, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path == "" {
			return endpoint{}, fmt.Errorf("%q has no path: a socket is given as unix:/path", text)
		}
		return endpoint{base: "http://localhost", unix: path}, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return endpoint{}, fmt.Errorf("not a URL: %w", err)
	}
	switch u.Scheme {
	case "http", "https":
	case "ws", "wss":
		u.Scheme = "http" + strings.TrimPrefix(u.Scheme, "ws")
	default:
		return endpoint{}, fmt.Errorf("%q is no address of a sidecar: allowed are http://host:port, https://host:port and unix:/path", text)
	}
	if u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return endpoint{}, fmt.Errorf("%q is no address of a sidecar: it has to be a scheme, a host and a port, as in http://127.0.0.1:7070", text)
	}
	return endpoint{base: strings.TrimRight(u.String(), "/")}, nil
}

func (e endpoint) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dial := e.by
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	if e.unix != "" {
		return dial(ctx, "unix", e.unix)
	}
	return dial(ctx, network, address)
}

// transport returns one of its own, so that closing its idle connections
// touches nobody else's.
func (e endpoint) transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = e.dial
	if e.tls != nil {
		t.TLSClientConfig = e.tls.Clone()
	}
	t.DisableCompression = true // what is asked for is said at the request
	return t
}
