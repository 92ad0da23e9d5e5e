package gateway

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
)

// erasure is which events are to go: that of an id, or all of a key.
type erasure struct {
	topic   string
	id, key *string
}

// deleteEvents erases events with their dead letters. It streams its progress;
// done again it goes on.
func (g *Gateway) deleteEvents(w http.ResponseWriter, r *http.Request) error {
	if r.URL.RawQuery == "" { // as what deletes all of them would be
		httpapi.RefuseMethod(w, r, "POST", ", and DELETE with one of the parameters id and key")
		return nil
	}
	x, err := g.erasureOf(r)
	if err != nil {
		return err
	}
	found, cancelled, err := g.toErase(r.Context(), x)
	if err != nil {
		return err
	}
	of := cancelled + len(found)
	lines := newProgress(w, of)
	code := lines.end(g.erase(r.Context(), found, func(done int) { lines.at(cancelled + done) }))
	by := "id"
	if x.key != nil {
		by = "key"
	}
	// A log that is kept must not name the erased ids and keys.
	g.cfg.Logger.Info("events were erased", "topic", x.topic, "selected_by", by, "events", of, "by", g.sender(r), "from", r.RemoteAddr, "code", code)
	return nil
}

func (g *Gateway) erasureOf(r *http.Request) (x erasure, err error) {
	p, err := httpapi.ParseParams(r.URL.RawQuery)
	if err != nil {
		return x, err
	}
	x.topic = r.PathValue("topic")
	for name, to := range map[string]**string{"id": &x.id, "key": &x.key} {
		text, err := p.Text(name)
		if err != nil {
			return x, err
		}
		if text != "" {
			*to = &text
		}
	}
	if (x.id == nil) == (x.key == nil) {
		return x, wire.Errorf(wire.BadRequest, "one of the parameters id and key is needed: the event with that id, or all events with that key")
	}
	return x, g.may(r, access.Admin, x.topic, "")
}

// errOnItsWay refuses to look for an event while the spool may have it.
func errOnItsWay(topic string) *wire.Error {
	return overloaded("events of topic %q are on their way from this sidecar's spool into the store; try again when they are there", topic)
}

// parts are the erasures of the topic's own events, and of their dead letters.
func (x erasure) parts() (own, letters eventlog.Erasure) {
	own, letters = eventlog.Erasure{Topic: x.topic}, eventlog.Erasure{Topic: x.topic + wire.DeadLetterSuffix}
	if x.key != nil {
		own.By, own.Value = eventlog.ErasedByKey, *x.key
		letters.By, letters.Value = own.By, own.Value
	} else {
		own.By, own.Value = eventlog.ErasedByID, *x.id
		letters.By, letters.Value = eventlog.ErasedByDeadID, *x.id
	}
	return own, letters
}

// eraseSpooled erases events in this sidecar's spool, and has the others do so, before the log is
// searched: events that leave a spool meanwhile are in the log by then.
func (g *Gateway) eraseSpooled(ctx context.Context, x erasure) (erased int, err error) {
	if g.cfg.EraseSpooled == nil {
		return 0, nil
	}
	own, letters := x.parts()
	for _, e := range []eventlog.Erasure{own, letters} {
		n, err := g.cfg.EraseSpooled(ctx, e, retention.Rules(g.cfg.Policies.Load().Topic(e.Topic)))
		if erased += n; err != nil {
			return erased, err
		}
	}
	return erased, nil
}

// toErase finds the events: dead letters first, so that they are not forgotten where it stops
// before the event itself. It erases spooled events and cancels scheduled ones before it searches,
// so that none comes into the log behind it; cancelled counts both.
func (g *Gateway) toErase(ctx context.Context, x erasure) (found []*eventlog.Record, cancelled int, err error) {
	own, letters := x.parts()
	spooled, err := g.eraseSpooled(ctx, x)
	if err != nil {
		return nil, spooled, err
	}
	cancelled, err = g.eraseScheduled(ctx, x)
	cancelled += spooled
	if err != nil {
		return nil, cancelled, err
	}
	found, err = g.scan(ctx, letters)
	if err != nil {
		return nil, cancelled, err
	}
	if x.key != nil {
		others, err := g.scan(ctx, own)
		return append(found, others...), cancelled, err
	}
	one, err := g.cfg.Log.Lookup(ctx, x.topic, *x.id)
	if notFound(err) && len(found)+cancelled > 0 {
		return found, cancelled, nil
	}
	return append(found, one), cancelled, err
}

func notFound(err error) bool { return err != nil && wire.AsError(refusal(err)).Code == wire.NotFound }

// scan finds the events of an erasure; its topic need not be there. Of each only what
// says where it is is kept.
func (g *Gateway) scan(ctx context.Context, e eventlog.Erasure) (found []*eventlog.Record, err error) {
	for page, err := range eventlog.Pages(ctx, g.cfg.Log, e.Topic, eventlog.ScanQuery{Key: e.Key()}, eventlog.Bounds{Events: 1000, Bytes: 1 << 20}) {
		if notFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for _, rec := range page {
			if e.Covers(rec) {
				found = append(found, &eventlog.Record{Event: wire.Event{Topic: e.Topic, Partition: rec.Partition, Seq: rec.Seq}})
			}
		}
	}
	slices.SortFunc(found, func(a, b *eventlog.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Seq, b.Seq))
	})
	return found, nil
}

// eraseBatch is how many events are erased at a time.
const eraseBatch = 500

// erase erases events, and lets go of what is in memory of them.
func (g *Gateway) erase(ctx context.Context, events []*eventlog.Record, progress func(done int)) error {
	for done := 0; done < len(events); {
		topic := events[done].Topic
		n, err := g.eraseFrom(ctx, events[done:], func(n int) { progress(done + n) })
		g.cfg.Erased(topic)
		if err := errors.Join(err, g.cfg.Groups.Recheck(ctx, topic)); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// eraseFrom erases the first of the events that are of one topic, and returns
// how many these are.
func (g *Gateway) eraseFrom(ctx context.Context, events []*eventlog.Record, progress func(done int)) (done int, err error) {
	topic := events[0].Topic
	rules := retention.Rules(g.cfg.Policies.Load().Topic(topic))
	for done < len(events) && events[done].Topic == topic {
		partition := events[done].Partition
		var seqs []uint64
		for _, rec := range events[done:] {
			if rec.Topic != topic || rec.Partition != partition || len(seqs) == eraseBatch {
				break
			}
			seqs = append(seqs, rec.Seq)
		}
		if _, err := g.cfg.Log.Erase(ctx, topic, partition, seqs, rules, time.Now().UnixMilli()); err != nil {
			return done, err
		}
		done += len(seqs)
		progress(done)
	}
	return done, nil
}
