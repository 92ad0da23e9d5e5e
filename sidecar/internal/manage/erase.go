package manage

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"
	"unsafe"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// deleteEvents erases events with their dead letters. It streams its progress. A repeated request
// continues.
func (m *handlers) deleteEvents(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
	if r.URL.RawQuery == "" { // as what deletes all of them would be
		httpapi.RefuseMethod(w, r.Request, "POST", ", and DELETE with one of the parameters id and key")
		return nil
	}
	own, err := m.erasureOf(caller, r)
	if err != nil {
		return err
	}
	held := caller.Hold()
	defer held.Free()
	found, cancelled, err := m.toErase(r.Context(), held, own)
	if err != nil {
		return err
	}
	of := cancelled + len(found)
	lines := newProgress(w, of)
	ctx, end := caller.While(r.Context(), access.Admin, own.Topic, "")
	defer end()
	if err = m.erase(ctx, found, func(done int) { lines.at(cancelled + done) }); err != nil {
		err = cmp.Or(context.Cause(ctx), err)
	}
	code := lines.end(err)
	// An access log that is kept must not name the erased ids and keys.
	m.Logger.Info("events were erased", "topic", own.Topic, "selected_by", own.By, "events", of,
		"by", caller.Identity().Name, "from", r.RemoteAddr, "code", code)
	return nil
}

// erasureOf reads which events to erase: the one with an id, or all with a key.
func (m *handlers) erasureOf(caller *session.Session, r *httpapi.Request) (own eventlog.Erasure, err error) {
	id, key := r.Text("id"), r.Text("key")
	if (id == "") == (key == "") {
		return own, wire.Errorf(wire.BadRequest, "one of the parameters id and key is needed: "+
			"the event with that id, or all events with that key")
	}
	own = eventlog.Erasure{Topic: r.PathValue("topic"), By: eventlog.ErasedByID, Value: id}
	if key != "" {
		own.By, own.Value = eventlog.ErasedByKey, key
	}
	return own, caller.May(access.Admin, own.Topic, "")
}

// errOnItsWay refuses to search for an event that may still be in the spool.
func errOnItsWay(topic string) *wire.Error {
	return refusal.Overloaded("events of topic %q are on their way from this sidecar's spool into the store; "+
		"try again when they are there", topic)
}

// toErase finds the events, dead letters first: if the erasure stops half-way, the event itself is
// still there, and a repeated erasure continues. Before it searches the log, it erases events in
// the spools of all sidecars and cancels scheduled events, so that none of these gets into the log
// after the search. cancelled counts both.
func (m *handlers) toErase(
	ctx context.Context, held *budget.Held, own eventlog.Erasure,
) (found []*eventlog.Record, cancelled int, err error) {
	topics, err := m.Log.DeadLetterTopics(ctx, own.Topic)
	if err != nil {
		return nil, 0, err
	}
	all := []eventlog.Erasure{own}
	for _, topic := range topics {
		all = append(all, own.OfDeadLetters(topic))
	}
	if m.Spool != nil {
		for _, e := range all {
			n, err := m.Spool.Erase(ctx, e, m.retained(e.Topic))
			if cancelled += n; err != nil {
				return nil, cancelled, err
			}
		}
	}
	n, err := m.eraseScheduled(ctx, own)
	if cancelled += n; err != nil {
		return nil, cancelled, err
	}
	for _, letters := range all[1:] {
		some, err := m.scan(ctx, held, letters)
		if err != nil {
			return nil, cancelled, err
		}
		found = append(found, some...)
	}
	if own.By == eventlog.ErasedByKey {
		others, err := m.scan(ctx, held, own)
		return append(found, others...), cancelled, err
	}
	one, err := m.Log.Lookup(ctx, own.Topic, own.Value)
	if notFound(err) && len(found)+cancelled > 0 {
		return found, cancelled, nil
	}
	return append(found, one), cancelled, err
}

func notFound(err error) bool {
	return err != nil && wire.AsError(refusal.Of(err)).Code == wire.NotFound
}

// scan finds the events of an erasure; the topic need not exist. It keeps only the place of each
// event.
func (m *handlers) scan(ctx context.Context, held *budget.Held, e eventlog.Erasure) (found []*eventlog.Record, err error) {
	if err := held.TryTake(erasePage.Bytes); err != nil {
		return nil, err
	}
	defer held.Give(erasePage.Bytes)
	pages := eventlog.Pages(ctx, m.Log, e.Topic, eventlog.ScanQuery{Key: e.Key()}, erasePage)
	for page, err := range pages {
		if notFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for _, rec := range page {
			if !e.Covers(rec) {
				continue
			}
			one := &eventlog.Record{Event: wire.Event{Topic: e.Topic, Partition: rec.Partition, Seq: rec.Seq}}
			if err := held.TryTake(int(unsafe.Sizeof(*one))); err != nil {
				return nil, err
			}
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b *eventlog.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Seq, b.Seq))
	})
	return found, nil
}

// erasePage bounds the events that are searched at a time.
var erasePage = eventlog.Bounds{Events: 1000, Bytes: 256 << 10}

// eraseBatch is how many events are erased at a time.
const eraseBatch = 500

// erase erases events, and drops them from memory after the last one of each topic.
func (m *handlers) erase(ctx context.Context, events []*eventlog.Record, progress func(done int)) error {
	for done := 0; done < len(events); {
		topic, partition := events[done].Topic, events[done].Partition
		var seqs []uint64
		for _, rec := range events[done:] {
			if rec.Topic != topic || rec.Partition != partition || len(seqs) == eraseBatch {
				break
			}
			seqs = append(seqs, rec.Seq)
		}
		_, err := m.Log.Erase(ctx, topic, partition, seqs, m.retained(topic), time.Now().UnixMilli())
		if err == nil {
			done += len(seqs)
			progress(done)
		}
		if err != nil || done == len(events) || events[done].Topic != topic {
			m.Erased(topic)
			if err := errors.Join(err, m.Groups.Recheck(ctx, topic)); err != nil {
				return err
			}
		}
	}
	return nil
}
