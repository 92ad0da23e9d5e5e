package daprapp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"unicode"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// outcome is the meaning of the application's answer for an event.
type outcome int

const (
	success outcome = iota
	retry
	drop
)

// process gives one event to the application, within the ack timeout, and settles it. If the
// application is away, or the sidecar no longer waits for it, the event stays in flight, and goes
// back to the group when the member leaves.
func (m *member) process(d group.Delivery) {
	a, leases := m.session.app, []group.Lease{d.Lease}
	ctx, cancel := context.WithTimeout(a.pushing, d.AckTimeout)
	defer cancel()
	what, why, err := a.push(ctx, &m.sub, d)
	log := a.cfg.Logger.With("topic", m.sub.Topic, "id", d.Record.ID, "route", m.sub.Route)
	switch {
	case errors.Is(err, errAway):
		m.session.end(errAway)
		return
	case err != nil && a.pushing.Err() != nil:
		return
	case err != nil:
		what, why = retry, err.Error()
	}
	settled := func(absent, lost []int, err error) {
		switch {
		case err != nil:
			log.Warn("the outcome of an event at the application is not recorded: the event may be delivered again", "error", err)
		case len(absent)+len(lost) > 0:
			log.Warn("the application has answered too late: the event is delivered again", "in_time", d.AckTimeout)
		}
	}
	// By lease, since the group may have delivered the event to the application again: a late
	// answer must not settle that delivery.
	switch what {
	case retry:
		log.Debug("the application wants an event again", "reason", why)
		a.cfg.Groups.NackLeases(m.sub.Topic, a.cfg.AppID, leases, wire.Nack{Reason: why}, settled)
	case drop:
		log.Warn("the application drops an event", "reason", why)
		fallthrough
	default:
		a.cfg.Groups.AckLeases(m.sub.Topic, a.cfg.AppID, leases, settled)
	}
}

// push posts an event to the application and reads its answer. The error is errAway if nothing
// listens there.
func (a *App) push(ctx context.Context, s *subscription, d group.Delivery) (what outcome, why string, err error) {
	ev := &d.Record.Event
	body := appendCloudEvent(nil, ev, s.PubsubName)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.cfg.Address.String()+s.Route, bytes.NewReader(body))
	if err != nil {
		return retry, "", err
	}
	req.Header.Set("Content-Type", "application/cloudevents+json")
	for _, name := range traceHeaders {
		// A value that HTTP cannot carry would make every delivery of the event fail.
		if value, ok := ev.Headers.Get(name); ok && !strings.ContainsFunc(value, unicode.IsControl) {
			req.Header.Set(name, value)
		}
	}
	res, err := a.client.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" && ctx.Err() == nil {
			return retry, "", errAway
		}
		return retry, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return retry, "", fmt.Errorf("the application's answer could not be read to its end: %w", err)
	}
	what, why = judge(res, text)
	return what, why, nil
}

// judge returns the meaning of the application's answer.
func judge(res *http.Response, text []byte) (what outcome, why string) {
	switch {
	case res.StatusCode == http.StatusNotFound:
		return drop, "the application answers 404"
	case res.StatusCode < 200 || res.StatusCode > 299:
		return retry, "the application answers " + res.Status
	}
	var answer struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(text, &answer) != nil {
		return success, "" // an answer of another kind
	}
	switch answer.Status {
	case "", "SUCCESS":
		return success, ""
	case "RETRY":
		return retry, "the application says RETRY"
	case "DROP":
		return drop, "the application says DROP"
	}
	return retry, fmt.Sprintf("the application says %.40q, instead of SUCCESS, RETRY or DROP", answer.Status)
}
