package push

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/delivery"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// maxAnswer bounds how much is read of an answer, which says nothing but its status.
const maxAnswer = 64 << 10

// Bounds of a hold. The most is what an endpoint may ask for by Retry-After.
const (
	leastHold    = 100 * time.Millisecond
	mostHold     = time.Hour
	mostAwayHold = 5 * time.Second
)

// The states of an endpoint.
const (
	stateJoining    = "joining" // its group
	stateDelivering = "delivering"
	stateAway       = "away"   // nothing listens there
	stateHeld       = "held"   // it has asked for a pause
	statePaused     = "paused" // it has answered 410
)

// endpoint is an entry that is served. It is the delivery.Carrier of its member.
type endpoint struct {
	Entry
	client  http.Client
	metrics *telemetry.Metrics
	trace   *tracing.Propagation
	log     *slog.Logger
	end     context.CancelFunc
	member  atomic.Pointer[delivery.Member]

	mu        sync.Mutex
	away      pause.Backoff
	awayUntil time.Time // zero: something listens there
	gone      bool      // it has answered 410
	last      string    // why the last event was not taken; "": it was
}

func newEndpoint(e Entry, cfg *Config) *endpoint {
	return &endpoint{
		Entry: e, metrics: cfg.Metrics, trace: cfg.Propagation, log: cfg.Logger.With("topic", e.Topic, "group", e.Group, "url", e.shownURL()),
		away: pause.Backoff{First: leastHold, Most: mostAwayHold},
		client: http.Client{
			Transport:     cfg.Tracing.Transport(newTransport(e.URL, e.MaxInflight)),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// shownURL is the entry's URL without its query, which may hold a secret.
func (e *Entry) shownURL() string {
	shown := *e.URL
	shown.RawQuery = ""
	return shown.String()
}

// Carry implements delivery.Carrier.
func (p *endpoint) Carry(ctx context.Context, ds []group.Delivery) ([]delivery.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	outcome, err := p.post(ctx, &ds[0])
	if err != nil {
		outcome = delivery.Outcome{Verdict: delivery.Nack, Reason: err.Error()}
	}
	p.note(outcome)
	return []delivery.Outcome{outcome}, err
}

// post brings an event to the endpoint; an error is that of an event that it may have got.
func (p *endpoint) post(ctx context.Context, d *group.Delivery) (delivery.Outcome, error) {
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	began, metrics := time.Now(), p.metrics.Group(p.Topic, p.Group)
	req, err := p.request(traced, d, p.trace, began)
	if err != nil {
		return delivery.Outcome{}, err
	}
	res, err := p.client.Do(req)
	switch {
	case err != nil && ctx.Err() == context.Canceled: // the sidecar stops
		return delivery.Outcome{}, err
	case err != nil && !connected.Load():
		metrics.Pushed("away", time.Since(began))
		return p.isAway(err), nil
	case err != nil:
		metrics.Pushed("none", time.Since(began))
		p.isThere()
		return delivery.Outcome{}, fmt.Errorf("the endpoint does not answer: %w", err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)) // so that the connection can be used again
	metrics.Pushed(strconv.Itoa(res.StatusCode), time.Since(began))
	p.isThere()
	return judge(res, time.Now()), nil
}

// isAway holds an event that the endpoint did not get, since no connection came about.
func (p *endpoint) isAway(err error) delivery.Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.awayUntil.IsZero() {
		p.log.Warn("an endpoint cannot be reached: its events wait, and count no attempt", "error", err)
	}
	if !now.Before(p.awayUntil) { // else others have found the same
		p.awayUntil = now.Add(p.away.Step())
	}
	return delivery.Outcome{Verdict: delivery.Hold, After: p.awayUntil.Sub(now), Reason: err.Error()}
}

// isThere notes that the endpoint was reached.
func (p *endpoint) isThere() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.awayUntil.IsZero() {
		p.log.Info("an endpoint can be reached again")
		p.away.Reset()
		p.awayUntil = time.Time{}
	}
}

// note keeps what became of the last event.
func (p *endpoint) note(o delivery.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = o.Reason
	if o.Verdict == delivery.Stop && !p.gone {
		p.gone = true
		p.log.Error("an endpoint answers 410 Gone: it gets no more events until the file of --push changes, or the sidecar is started again")
	}
}

// judge is the outcome of an answer.
func judge(res *http.Response, now time.Time) delivery.Outcome {
	reason := "the endpoint answers " + res.Status
	switch code := res.StatusCode; {
	case code >= 200 && code <= 299:
		return delivery.Outcome{Verdict: delivery.Ack}
	case code == http.StatusGone:
		return delivery.Outcome{Verdict: delivery.Stop, Reason: reason}
	case code >= 300 && code <= 399:
		reason += ", and redirects are not followed"
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable,
		code == http.StatusGatewayTimeout:
		if after, given := retryAfter(res.Header.Get("Retry-After"), now); given {
			return delivery.Outcome{Verdict: delivery.Hold, After: after, Reason: reason}
		}
	}
	return delivery.Outcome{Verdict: delivery.Nack, Reason: reason}
}

// retryAfter reads a number of seconds or a date.
func retryAfter(text string, now time.Time) (after time.Duration, given bool) {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		after = at.Sub(now)
	} else {
		return 0, false
	}
	return min(max(after, leastHold), mostHold), true
}

// Stat is an endpoint, for /v1/status.
type Stat struct {
	Topic string `json:"topic"`
	Group string `json:"group"`
	URL   string `json:"url"`
	State string `json:"state"`
	Last  string `json:"last,omitempty"` // why the last event was not taken
}

func (p *endpoint) stat() Stat {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stat{Topic: p.Topic, Group: p.Group, URL: p.shownURL(), State: stateDelivering, Last: p.last}
	switch m := p.member.Load(); {
	case m == nil:
		s.State = stateJoining
	case p.gone:
		s.State = statePaused
	case !p.awayUntil.IsZero():
		s.State = stateAway
	case m.Held():
		s.State = stateHeld
	}
	return s
}

// isGone reports whether it has answered 410.
func (p *endpoint) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}
