package daprapp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/cloudevent"
	"github.com/sluice-bus/sluice/sidecar/internal/delivery"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// tokenHeader authenticates the sidecar to its application, and the other way round.
const tokenHeader = "dapr-api-token"

// httpChannel is an application that serves HTTP.
type httpChannel struct {
	address *url.URL
	token   func() string
	trace   *tracing.Propagation
	client  *http.Client
}

func newHTTPChannel(cfg *Config) *httpChannel {
	return &httpChannel{address: cfg.Address, token: cfg.Token, trace: cfg.Propagation, client: &http.Client{
		// No proxy and no redirects to elsewhere: the application is on the same machine.
		Transport:     cfg.Tracing.Transport(&http.Transport{MaxIdleConnsPerHost: 4 * Concurrency, IdleConnTimeout: time.Minute}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (c *httpChannel) close() { c.client.CloseIdleConnections() }

// do sends a request and reads the answer, at most so many bytes of it.
func (c *httpChannel) do(req *http.Request, most int64) (status int, text []byte, err error) {
	if token := c.token(); token != "" {
		req.Header.Set(tokenHeader, token)
	}
	res, err := c.client.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" && req.Context().Err() == nil {
			err = errAway
		}
		return 0, nil, err
	}
	defer res.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(res.Body, most)); err != nil {
		err = fmt.Errorf("the application's answer could not be read to its end: %w", err)
	}
	return res.StatusCode, text, err
}

func (c *httpChannel) list(ctx context.Context) ([]Described, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address.JoinPath("/dapr/subscribe").String(), nil)
	if err != nil {
		return nil, err
	}
	code, text, err := c.do(req, maxList)
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusNotFound, code == http.StatusMethodNotAllowed, code == http.StatusNoContent:
		return nil, nil
	case code != http.StatusOK:
		return nil, fmt.Errorf("GET /dapr/subscribe is answered with %d", code)
	}
	return parseList(text)
}

func (c *httpChannel) give(ctx context.Context, b *batch) ([]verdict, error) {
	body, contentType, most := b.events[0].AppendJSON(nil), cloudevent.MediaType, int64(maxAnswer)
	if b.isBulk() {
		body, contentType, most = b.appendJSON(nil), "application/json", int64(maxAnswer+len(b.events)*maxEntryAnswer)
	}
	to := c.address.String() + "/" + strings.TrimPrefix(b.path, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	if !b.isBulk() {
		c.trace.Inject(&b.events[0].Record.Event, req.Header.Set)
	}
	code, text, err := c.do(req, most)
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusNotFound:
		return b.all(delivery.Drop, "the application answers 404"), nil
	case code < 200 || code > 299:
		return b.all(delivery.Nack, "the application answers %d %s", code, http.StatusText(code)), nil
	case b.isBulk():
		return b.judge(text), nil
	}
	return []verdict{judge(text)}, nil
}

// judge is the verdict of a successful answer to one event. What is not an answer of Dapr's kind is success.
func judge(text []byte) verdict {
	var answer struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(text, &answer) != nil || answer.Status == "" {
		return verdict{}
	}
	return statusVerdict(answer.Status)
}

// judge are the verdicts of a successful answer to a batch, which must say one for each event.
func (b *batch) judge(text []byte) []verdict {
	var answer struct {
		Statuses []struct {
			EntryID string `json:"entryId"`
			Status  string `json:"status"`
		} `json:"statuses"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return b.all(delivery.Nack, "the application's answer to a batch cannot be read: %v", err)
	}
	statuses := make(map[string]string, len(answer.Statuses))
	for _, s := range answer.Statuses {
		statuses[s.EntryID] = s.Status
	}
	return b.byEntry(statuses)
}

// bulkType is Dapr's type of a batch.
const bulkType = "com.dapr.event.sent.bulk"

// appendJSON writes a batch as Dapr does.
func (b *batch) appendJSON(dst []byte) []byte {
	member := func(name, value string) {
		dst = codec.AppendString(append(codec.AppendString(append(dst, ','), name), ':'), value)
	}
	dst = codec.AppendString(append(dst, `{"id":`...), uuid.NewString())
	member("type", bulkType)
	member("topic", b.Topic)
	member("pubsubname", b.PubsubName)
	dst = codec.AppendString(append(dst, `,"metadata":{"pubsubName":`...), b.PubsubName)
	dst = append(dst, `},"entries":[`...)
	for i, e := range b.events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = codec.AppendString(append(dst, `{"entryId":`...), e.Record.ID)
		member("contentType", b.entryType())
		dst = append(dst, `,"metadata":{},"event":`...)
		if b.Raw {
			dst = codec.AppendString(dst, base64.StdEncoding.EncodeToString(e.Payload))
		} else {
			dst = e.AppendJSON(dst)
		}
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// entryType is the type of each event of a batch.
func (b *batch) entryType() string {
	if b.Raw {
		return rawContentType
	}
	return cloudevent.MediaType
}
