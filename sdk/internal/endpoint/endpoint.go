// Package endpoint connects to the listeners of sidecars and control planes, and reads their
// refusals.
package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// Endpoint is one listener of a sidecar.
type Endpoint struct {
	Base string // of the URLs, without a slash at its end
	unix string // the socket's path; "": Base has the address
	TLS  *tls.Config
	by   func(ctx context.Context, network, address string) (net.Conn, error) // nil: package net's
}

// With returns the endpoint with this TLS configuration and dialer.
func (e Endpoint) With(c *tls.Config, by func(ctx context.Context, network, address string) (net.Conn, error)) Endpoint {
	e.TLS, e.by = c, by
	return e
}

// Parse reads http://host:port, https://host:port (or ws and wss, which mean the same), or
// unix:/path.
func Parse(text string) (Endpoint, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path == "" {
			return Endpoint{}, fmt.Errorf("%q has no path: a socket is given as unix:/path", text)
		}
		return Endpoint{Base: "http://localhost", unix: path}, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return Endpoint{}, fmt.Errorf("not a URL: %w", err)
	}
	switch u.Scheme {
	case "http", "https":
	case "ws", "wss":
		u.Scheme = "http" + strings.TrimPrefix(u.Scheme, "ws")
	default:
		return Endpoint{}, fmt.Errorf("%q is no address of a sidecar: allowed are http://host:port, https://host:port and unix:/path", text)
	}
	if u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return Endpoint{}, fmt.Errorf("%q is no address of a sidecar: it has to be a scheme, a host and a port, as in http://127.0.0.1:7070",
			text)
	}
	return Endpoint{Base: strings.TrimRight(u.String(), "/")}, nil
}

// Dial connects; for a socket it ignores the address.
func (e Endpoint) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dial := e.by
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	if e.unix != "" {
		return dial(ctx, "unix", e.unix)
	}
	return dial(ctx, network, address)
}

// Transport returns a new one, so that closing its idle connections affects no other client.
func (e Endpoint) Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = e.Dial
	if e.TLS != nil {
		t.TLSClientConfig = e.TLS.Clone()
	}
	t.DisableCompression = true // a request that wants compression asks for it
	return t
}

// errorBytes is the most that is read of the body of a refusal.
const errorBytes = 64 << 10

// ReadError makes an error of a refusal, and closes its body.
func ReadError(resp *http.Response) error {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, errorBytes))
	if err != nil {
		return fmt.Errorf("the answer has status %d, but its body cannot be read: %w", resp.StatusCode, err)
	}
	return codec.ParseErrorBody(resp.StatusCode, body)
}

// UnwrapURLError drops the method and the whole URL, which http puts before the error.
func UnwrapURLError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
