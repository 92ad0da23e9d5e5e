package admin

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sluice-bus/sluice/sdk/internal/endpoint"
)

// HTTP asks the HTTP listeners of a sidecar. An address is http://host:port, https://host:port or
// unix:/path; if that of the replay API or the ops listener is empty, the listener at AppURL is asked
// for it, once. The fields must not be changed
// after the first call. Methods may be called by several goroutines at once; refusals are
// [*wire.Error].
type HTTP struct {
	AppURL    string // publishing, topics and groups
	ReplayURL string // replay and export
	OpsURL    string // status
	// Store, if set, is the store that is asked through the control plane at AppURL: by its store_id.
	Store string
	Token string // sent as a bearer token; "" sends none
	// TokenFunc, if set, returns the token of each request; Token is then not used.
	TokenFunc func(context.Context) (string, error)
	TLSConfig *tls.Config                                                          // for https; nil trusts what the system trusts
	Dialer    func(ctx context.Context, network, address string) (net.Conn, error) // makes connections; nil is package net's

	mu      sync.Mutex
	clients map[string]*client
	found   *Listeners // nil until they were asked for
}

// client sends the requests to one listener.
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

// Listeners are the addresses of a program's listeners, as a client reaches them.
type Listeners struct {
	App, Replay, Ops string // "" for what the program does not have, or does not tell without a token
	ControlPlane     string
}

// Listeners asks the listener at AppURL which others there are. The address of one that listens on all of its machine's
// addresses has the host of AppURL.
func (h *HTTP) Listeners(ctx context.Context) (Listeners, error) {
	h.mu.Lock()
	found := h.found
	h.mu.Unlock()
	if found != nil {
		return *found, nil
	}
	root, err := ask[struct {
		Listeners    struct{ App, Replay, Ops string }
		ControlPlane string `json:"control_plane"`
	}](WithAnswers(ctx, nil), h, http.MethodGet, h.AppURL, "/", nil)
	if err != nil {
		return Listeners{}, err
	}
	found = &Listeners{
		App: beside(h.AppURL, root.Listeners.App), Replay: beside(h.AppURL, root.Listeners.Replay), Ops: beside(h.AppURL, root.Listeners.Ops),
		ControlPlane: planeBeside(h.AppURL, root.ControlPlane),
	}
	h.mu.Lock()
	h.found = found
	h.mu.Unlock()
	return *found, nil
}

// beside makes a URL of the address of another listener of the program at base.
func beside(base, address string) string {
	u, err := url.Parse(base)
	host, port, bad := net.SplitHostPort(address)
	if strings.HasPrefix(address, "unix:") || err != nil || bad != nil { // a socket, or a program that tells nothing
		return address
	}
	if ip := net.ParseIP(host); u.Hostname() != "" && (host == "" || ip != nil && (ip.IsUnspecified() || ip.IsLoopback())) {
		host = u.Hostname()
	}
	scheme := "http"
	if u.Scheme == "https" || u.Scheme == "wss" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// planeBeside is the URL of a control plane's REST API as the sidecar at base says it. A loopback address is one of that sidecar's
// machine.
func planeBeside(base, said string) string {
	u, err := url.Parse(said)
	sidecar, bad := url.Parse(base)
	if err != nil || bad != nil || u.Host == "" {
		return ""
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() && sidecar.Hostname() != "" {
		u.Host = net.JoinHostPort(sidecar.Hostname(), u.Port())
	}
	return u.String()
}

// replay is the address of the replay API.
func (h *HTTP) replay(ctx context.Context) (string, error) {
	return h.known(ctx, h.ReplayURL, "replay API", func(l Listeners) string { return l.Replay })
}

// ops is the address of the ops listener.
func (h *HTTP) ops(ctx context.Context) (string, error) {
	return h.known(ctx, h.OpsURL, "ops listener", func(l Listeners) string { return l.Ops })
}

// known is the address that is given, else the one that the listener at AppURL tells.
func (h *HTTP) known(ctx context.Context, given, name string, of func(Listeners) string) (string, error) {
	switch {
	case h.Store != "":
		return h.AppURL, nil
	case given != "" || h.AppURL == "":
		return given, nil
	}
	found, err := h.Listeners(ctx)
	if err != nil {
		return "", fmt.Errorf("finding the %s: %w", name, err)
	}
	if of(found) == "" {
		return "", fmt.Errorf("%s does not tell where its %s is: give its address, or a token", h.AppURL, name)
	}
	return of(found), nil
}

// call makes a request and returns its answer. The status is below 300, and the caller closes the
// body.
func (h *HTTP) call(ctx context.Context, method, address, path string, body []byte, header http.Header) (*http.Response, error) {
	c, err := h.client(address)
	if err != nil {
		return nil, err
	}
	if h.Store != "" {
		path = "/v1/stores/" + pathPart(h.Store) + strings.TrimPrefix(path, "/v1")
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	if _, err := authorize(req, h.Token, h.TokenFunc); err != nil {
		return nil, err
	}
	return send(c.http, address, req)
}

// authorize gives a request its bearer token, and reports whether there is one.
func authorize(req *http.Request, token string, tokenFunc func(context.Context) (string, error)) (has bool, err error) {
	if tokenFunc != nil {
		if token, err = tokenFunc(req.Context()); err != nil {
			return false, fmt.Errorf("getting a token: %w", err)
		}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return token != "", nil
}

// send sends a request to an address and returns its answer. The status is below 300, and the
// caller closes the body. A change follows no redirect: it would change something else than what was named.
func send(client *http.Client, address string, req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		once := *client
		once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		client = &once
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", address, endpoint.UnwrapURLError(err))
	}
	if resp.StatusCode >= 300 {
		return nil, endpoint.ReadError(resp)
	}
	return resp, nil
}

// body makes a request and returns the whole body of the answer.
func (h *HTTP) body(ctx context.Context, method, address, path string, body []byte, header http.Header) ([]byte, error) {
	resp, err := h.call(ctx, method, address, path, body, header)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", address, err)
	}
	return answer, nil
}

func (h *HTTP) get(ctx context.Context, address, path string) ([]byte, error) {
	return h.body(ctx, http.MethodGet, address, path, nil, nil)
}

// ask makes a request and decodes its answer, which is JSON.
func ask[T any](ctx context.Context, h *HTTP, method, address, path string, body []byte) (answer T, err error) {
	text, err := h.body(ctx, method, address, path, body, nil)
	if err != nil {
		return answer, err
	}
	if err = json.Unmarshal(text, &answer); err != nil {
		return answer, fmt.Errorf("the answer to %s: %w", path, err)
	}
	return answer, handOver(ctx, text)
}

type answersKey struct{}

// WithAnswers returns a context whose calls pass the JSON text of each answer that they decode to each, before they return: for
// programs that show an answer with members that this package does not know. An error of each becomes that of the call. nil
// takes an each away that ctx has.
func WithAnswers(ctx context.Context, each func(answer []byte) error) context.Context {
	return context.WithValue(ctx, answersKey{}, each)
}

// handOver passes an answer to what WithAnswers has set.
func handOver(ctx context.Context, answer []byte) error {
	if each, _ := ctx.Value(answersKey{}).(func([]byte) error); each != nil {
		return each(answer)
	}
	return nil
}

// pages yields the elements of a list, page after page. page returns the page at a cursor, "" at
// first, and the cursor of the next one. An error is the last that is yielded.
func pages[T any](cursor string, page func(cursor string) (elements []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			elements, next, err := page(cursor)
			if err != nil {
				yield(*new(T), err)
				return
			}
			for _, e := range elements {
				if !yield(e, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			cursor = next
		}
	}
}

// query is the part of a URL with these parameters, given as names and values in turn. It leaves
// out parameters whose value is "".
func query(parameters ...string) string {
	v := url.Values{}
	for pair := range slices.Chunk(parameters, 2) {
		if pair[1] != "" {
			v.Set(pair[0], pair[1])
		}
	}
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
}

// number is the value of a parameter; "" for 0.
func number[N int | int64](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

// optional is the value of a parameter; "" for nil.
func optional(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// onlyIf is value if so is true, else "", which leaves the parameter out.
func onlyIf(so bool, value string) string {
	if so {
		return value
	}
	return ""
}

// topicPath is the path of a topic, or of a part of it.
func topicPath(topic string, parts ...string) string {
	path := "/v1/topics/" + pathPart(topic)
	for _, part := range parts {
		path += "/" + pathPart(part)
	}
	return path
}

// pathPart escapes one part of a path, also a part that is . or .., which would name another path.
func pathPart(text string) string {
	if text == "." || text == ".." {
		return strings.ReplaceAll(text, ".", "%2E")
	}
	return url.PathEscape(text)
}
