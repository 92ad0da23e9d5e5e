package daprapp

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"

	"github.com/sluice-bus/sluice/sidecar/internal/delivery"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// verdict is the application's answer for one event.
type verdict = delivery.Outcome

// carrier brings the events of one subscription to the application.
type carrier struct {
	app *App
	sub *Subscription
	end context.CancelCauseFunc // ends serving
}

// batch are events for one path: one, or several where the subscription is in bulk.
type batch struct {
	*Subscription
	path   string
	events []entry
}

// entry is an event of a batch.
type entry struct {
	group.Delivery
	envelope
}

// Carry implements delivery.Carrier: it gives events to the application at the paths that its rules say.
func (c *carrier) Carry(ctx context.Context, ds []group.Delivery) ([]delivery.Outcome, error) {
	outcomes := make([]delivery.Outcome, len(ds))
	var paths []string // in the order of their first events
	byPath := map[string]*batch{}
	places := map[string][]int{}
	for i, d := range ds {
		e := entry{d, wrap(&d.Record.Event, c.app.cfg.AppID, c.sub)}
		path, err := c.sub.pathOf(e.envelope)
		switch {
		case err == errNoRoute:
			outcomes[i] = verdict{Verdict: delivery.Drop, Reason: err.Error()}
			continue
		case err != nil:
			outcomes[i] = verdict{Verdict: delivery.Nack, Reason: err.Error()}
			continue
		case byPath[path] == nil:
			paths, byPath[path] = append(paths, path), &batch{Subscription: c.sub, path: path}
		}
		byPath[path].events = append(byPath[path].events, e)
		places[path] = append(places[path], i)
	}
	for _, path := range paths {
		answers, err := c.app.channel.give(ctx, byPath[path])
		switch {
		case err == errAway:
			c.end(errAway)
			answers = delivery.AllOf(len(places[path]), verdict{Verdict: delivery.Stop, Reason: err.Error()})
		case err != nil && c.app.giving.Err() != nil:
			return nil, err // what was answered before comes again
		case err != nil:
			answers = delivery.AllOf(len(places[path]), verdict{Verdict: delivery.Nack, Reason: err.Error()})
		}
		for n, i := range places[path] {
			outcomes[i] = answers[n]
		}
	}
	return outcomes, nil
}

// statusVerdict is the verdict of a status that the application says, or why it is none.
func statusVerdict(text string) verdict {
	switch text {
	case "SUCCESS":
		return verdict{}
	case "RETRY":
		return verdict{Verdict: delivery.Nack, Reason: "the application says RETRY"}
	case "DROP":
		return verdict{Verdict: delivery.Drop, Reason: "the application says DROP"}
	case "":
		return verdict{Verdict: delivery.Nack, Reason: "the application says no status for the event"}
	}
	return verdict{Verdict: delivery.Nack, Reason: fmt.Sprintf("the application says %.40q, instead of SUCCESS, RETRY or DROP", text)}
}

// byEntry are the verdicts of a batch's entries, from the statuses by entry; an event that is not named is wanted again.
func (b *batch) byEntry(statuses map[string]string) []verdict {
	out := make([]verdict, len(b.events))
	for i, e := range b.events {
		if text, named := statuses[e.Record.ID]; named {
			out[i] = statusVerdict(text)
		} else {
			out[i] = verdict{Verdict: delivery.Nack, Reason: "the application's answer does not name the event"}
		}
	}
	return out
}

// all is one verdict for a batch.
func (b *batch) all(v delivery.Verdict, format string, args ...any) []verdict {
	return delivery.AllOf(len(b.events), verdict{Verdict: v, Reason: fmt.Sprintf(format, args...)})
}

// ParseAddress reads the address of an application: http://HOST:PORT or grpc://HOST:PORT. HOST must be this machine.
func ParseAddress(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "grpc" || u.Port() == "" || *u != (url.URL{Scheme: u.Scheme, Host: u.Host}) {
		return nil, fmt.Errorf("%q must be http://HOST:PORT or grpc://HOST:PORT", text)
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%q is not on this machine: the host must be localhost or a loopback address", text)
	}
	return u, nil
}

// open makes the channel to an application.
func open(cfg *Config) (channel, error) {
	if cfg.Address.Scheme == "grpc" {
		return newGRPCChannel(cfg)
	}
	return newHTTPChannel(cfg), nil
}
