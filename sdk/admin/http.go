package admin

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/sluice-bus/sluice/sdk/internal/endpoint"
)

// HTTP asks the HTTP listeners of a sidecar. An address is http://host:port,
// https://host:port or unix:/path; one that is empty only fails the methods that
// need it. The fields must not be changed after the first call. Methods may be
// called by several goroutines at once; refusals are [*wire.Error].
type HTTP struct {
	AppURL    string // publishing, topics and groups
	ReplayURL string // replay and export
	OpsURL    string // status
	Token     string // sent as a bearer token; "" sends none
	// TokenFunc, where it is set, is asked for the token of each request, instead
	// of Token.
	TokenFunc func(context.Context) (string, error)
	TLSConfig *tls.Config                                                          // for https; nil trusts what the system trusts
	Dialer    func(ctx context.Context, network, address string) (net.Conn, error) // makes connections; nil is package net's

	mu      sync.Mutex
	clients map[string]*client
}

// client is what one listener is asked with.
type client struct {
	base string
	http *http.Client
}

// CloseIdle closes the connections that no call uses.
func (h *HTTP) CloseIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.clients {
		c.http.CloseIdleConnections()
	}
}

func (h *HTTP) client(address string) (*client, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.clients[address]; c != nil {
		return c, nil
	}
	at, err := endpoint.Parse(address)
	if err != nil {
		return nil, err
	}
	if h.clients == nil {
		h.clients = map[string]*client{}
	}
	c := &client{base: at.Base, http: &http.Client{Transport: at.With(h.TLSConfig, h.Dialer).Transport()}}
	h.clients[address] = c
	return c, nil
}

// call makes a request and returns its answer, which is below 300 and whose
// body the caller closes.
func (h *HTTP) call(ctx context.Context, method, address, path string, body []byte, header http.Header) (*http.Response, error) {
	c, err := h.client(address)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	token := h.Token
	if h.TokenFunc != nil {
		if token, err = h.TokenFunc(ctx); err != nil {
			return nil, fmt.Errorf("getting a token: %w", err)
		}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", address, endpoint.UnwrapURLError(err))
	}
	if resp.StatusCode >= 300 {
		return nil, endpoint.ReadError(resp)
	}
	return resp, nil
}

// get returns the whole body of what path answers.
func (h *HTTP) get(ctx context.Context, address, path string) ([]byte, error) {
	resp, err := h.call(ctx, http.MethodGet, address, path, nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", address, err)
	}
	return body, nil
}

// topicPath is the path of a topic, or of a part of it.
func topicPath(topic string, parts ...string) string {
	path := "/v1/topics/" + url.PathEscape(topic)
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	return path
}
