package federation

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

// Bounds of a peer's small answers.
const (
	maxHelloBytes = 64 << 10
	maxErrorBytes = 64 << 10
	maxTimesBytes = 256 << 10
)

// Bounds of idle connections to peers.
const (
	idlePerPeer     = 2
	idleConnections = 64
	idleTimeout     = 90 * time.Second
)

// unixHost ends the host names that stand for unix sockets in URLs.
const unixHost = "unix-socket"

// newTransport makes the one transport to all peers. Timeouts come from the requests' contexts.
func newTransport(client *access.Client) *http.Transport {
	dialer := &net.Dialer{KeepAlive: 15 * time.Second}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if path, ok := socketOf(address); ok {
				return dialer.DialContext(ctx, "unix", path)
			}
			return dialer.DialContext(ctx, network, address)
		},
		DisableCompression:     true, // peers are near, and the text is used as it arrives
		MaxIdleConns:           idleConnections,
		MaxIdleConnsPerHost:    idlePerPeer,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHelloBytes,
		ReadBufferSize:         chunkBytes,
	}
	client.UseIn(t)
	return t
}

// socketHost turns a socket's path into a host name. Each socket has its own, so that connections
// are kept apart.
func socketHost(path string) string { return fmt.Sprintf("%x.%s", path, unixHost) }

// socketOf is the reverse of socketHost, from host:port.
func socketOf(address string) (path string, ok bool) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return "", false
	}
	digits, ok := strings.CutSuffix(host, "."+unixHost)
	text, err := hex.DecodeString(digits)
	return string(text), ok && err == nil
}

// peer asks another sidecar over HTTP.
type peer struct {
	address   string
	base      url.URL
	host      string // for the Host header; "": that of the URL
	client    *http.Client
	node      string                      // the id that the control plane lists; "": it lists none
	authorize func(*http.Request, string) // may be nil
	patience  time.Duration               // without a byte
	clear     bool                        // TLS is required, and there is none
}

func newPeer(c *Config, client *http.Client, listed Peer) *peer {
	address := listed.Address
	p := &peer{
		address: address, node: listed.NodeID, client: client, authorize: c.Authorize, patience: c.StallTimeout,
		base: url.URL{Scheme: "http", Host: address},
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		p.base.Host, p.host = socketHost(path), "localhost"
	} else if c.Client.Secure() {
		p.base.Scheme = "https"
	} else {
		p.clear = !c.Insecure && !listen.IsLoopback(address)
	}
	return p
}

func (p *peer) hello(ctx context.Context) (who replay.Peer, err error) {
	res, err := p.do(ctx, http.MethodGet, "/peer", nil, nil)
	if err != nil {
		return who, err
	}
	defer res.Body.Close()
	if err := readJSON(res.Body, maxHelloBytes, &who); err != nil {
		return who, fmt.Errorf("its answer to GET /peer: %w", err)
	}
	if who.NodeID == "" || who.Instance == "" {
		return who, errors.New("its answer to GET /peer names no sidecar")
	}
	return who, nil
}

func (p *peer) times(ctx context.Context, part, topic string, key *string, ids []string) ([]*int64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.patience, errStalled)
	defer cancel()
	q := url.Values{"topic": {topic}}
	if part != replay.AnyPart {
		q.Set("part", part)
	}
	if key != nil {
		q.Set("key", *key)
	}
	body, err := json.Marshal(replay.PeerIDs{IDs: ids})
	if err != nil {
		return nil, err
	}
	res, err := p.do(ctx, http.MethodPost, "/peer/ids", q, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var answer replay.PeerTimes
	if err := readJSON(res.Body, maxTimesBytes, &answer); err != nil {
		return nil, fmt.Errorf("its answer to POST /peer/ids: %w", err)
	}
	if len(answer.TS) != len(ids) {
		return nil, fmt.Errorf("it answered %d times for %d ids", len(answer.TS), len(ids))
	}
	return answer.TS, nil
}

func (p *peer) open(ctx context.Context, a ask) (text io.ReadCloser, empty bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	body := &patientBody{ctx: ctx, cancel: cancel, patience: p.patience}
	body.watch = time.AfterFunc(p.patience, func() { cancel(errStalled) })
	res, err := p.do(ctx, http.MethodGet, "/export", exportParams(a), nil)
	body.watch.Stop()
	if err == nil {
		body.text = res.Body
		err = checkOrigin(res.Header, a)
	}
	if err != nil {
		body.Close()
		return nil, false, err
	}
	return body, res.Header.Get(replay.HeaderEmpty) != "", nil
}

// exportParams is a as the parameters of GET /export.
func exportParams(a ask) url.Values {
	q := url.Values{
		"topic": {a.topic}, "scope": {"store"}, "part": {a.part}, "order": {"asc"},
		"fromTs": {strconv.FormatInt(max(a.scan.MinTS, 0), 10)},
		"toTs":   {strconv.FormatInt(min(a.scan.Upper(), wire.MaxTS), 10)},
	}
	if a.scan.Descending {
		q.Set("order", "desc")
	}
	if a.scan.Key != nil {
		q.Set("key", *a.scan.Key)
	}
	if a.scan.After != nil {
		q.Set("afterTs", strconv.FormatInt(a.scan.After.TS, 10))
		q.Set("afterId", a.scan.After.ID)
	}
	if a.limit > 0 {
		q.Set("limit", strconv.Itoa(a.limit))
	}
	return q
}

// checkOrigin checks that the requested store or sidecar has answered.
func checkOrigin(h http.Header, a ask) error {
	if got := h.Get(replay.HeaderStoreID); a.part == replay.PartLog && got != a.store {
		return fmt.Errorf("it is on store %q now, not on %q", got, a.store)
	}
	if got := h.Get(replay.HeaderNodeID); a.part == replay.PartSpool && got != a.node {
		return fmt.Errorf("sidecar %q answered for %q", got, a.node)
	}
	return nil
}

// do sends a request and returns the answer if its status is 200, else the refusal as a
// *wire.Error.
func (p *peer) do(ctx context.Context, method, path string, q url.Values, body []byte) (*http.Response, error) {
	if p.clear {
		return nil, errClear
	}
	u := p.base
	u.Path, u.RawQuery = path, q.Encode()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Host = p.host
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
		r.Header["Idempotency-Key"] = nil // not sent; it says that the request may be repeated
	}
	if p.authorize != nil {
		p.authorize(r, p.node)
	}
	res, err := p.client.Do(r)
	if err != nil {
		return nil, plainError(ctx, err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBytes)) // the part that arrived
	return nil, fmt.Errorf("it answered %d: %w", res.StatusCode, codec.ParseErrorBody(res.StatusCode, text))
}

// plainError is err without the URL, or the cause of the end of ctx.
func plainError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// readJSON reads a whole answer.
func readJSON(r io.Reader, most int64, into any) error {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return err
	}
	if int64(len(text)) > most {
		return fmt.Errorf("longer than %d bytes", most)
	}
	return json.Unmarshal(text, into)
}

// patientBody is a text whose Read fails with errStalled after waiting too long. The time between
// Reads does not count, since this side causes it.
type patientBody struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	text     io.ReadCloser // nil: there was no answer
	watch    *time.Timer
	patience time.Duration
}

func (b *patientBody) Read(p []byte) (int, error) {
	b.watch.Reset(b.patience)
	n, err := b.text.Read(p)
	b.watch.Stop()
	if err != nil && err != io.EOF {
		err = plainError(b.ctx, err)
	}
	return n, err
}

func (b *patientBody) Close() error {
	b.watch.Stop()
	b.cancel(nil)
	if b.text == nil {
		return nil
	}
	return b.text.Close()
}
