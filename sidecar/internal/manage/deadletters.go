package manage

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// deadLetterInfo is a dead letter as GET …/dlq lists it.
type deadLetterInfo struct {
	ID       string          `json:"dlq_id"`
	Event    string          `json:"id"`
	Group    string          `json:"group"`
	Reason   string          `json:"reason"`
	Attempts int             `json:"attempts"`
	DiedAt   int64           `json:"died_at"`
	State    string          `json:"state"`
	Content  json.RawMessage `json:"event" schema:"Event"`
}

// place is what a caller who does not see content is shown of an event.
type place struct {
	ID        string `json:"id"`
	TS        int64  `json:"ts"`
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Seq       uint64 `json:"seq"`
}

func placeOf(e *wire.Event) place { return place{e.ID, e.TS, e.Topic, e.Partition, e.Seq} }

type deadLetterList struct {
	Total int              `json:"total"`
	Dead  []deadLetterInfo `json:"dead_letters"`
	Next  string           `json:"next,omitempty"`
}

const (
	stateDead     = "dead"
	stateRedriven = "redriven"
)

// deadPage bounds the dead letters that are read at a time.
var deadPage = eventlog.Bounds{Events: 1000, Bytes: 1 << 20}

// deadLetters selects dead letters of a topic; an empty field selects all.
type deadLetters struct {
	topic         string   // whose they are
	in            []string // the topics to look in; nil: all that have some
	group, reason string
	before        int64           // only those that died before this time; 0: all
	ids           map[string]bool // nil: all
	sees          func(group string) bool
	order         string          // by time of death: "asc" (or ""), or "desc"
	after         *eventlog.Point // in the order of the dead letters
	held          *budget.Held    // of the caller's memory, to be freed with the request
}

func (q *deadLetters) selects(d *eventlog.Dead) bool {
	if d.Event.Topic != q.topic || !q.sees(d.Group) || q.group != "" && q.group != d.Group {
		return false
	}
	wanted := (q.reason == "" || q.reason == d.Reason) && (q.before == 0 || d.Letter.TS < q.before)
	return wanted && (q.ids == nil || q.ids[d.ID])
}

// eachDead visits pages of the selected dead letters, by the time of death, until visit returns
// false. What visit keeps of an event's texts it has to clone: they hold the event.
func (m *handlers) eachDead(ctx context.Context, q deadLetters, visit func([]eventlog.Dead) (more bool, err error)) error {
	if q.in == nil {
		var err error
		if q.in, err = m.Log.DeadLetterTopics(ctx, q.topic); err != nil {
			return err
		}
	}
	scan := eventlog.ScanQuery{Descending: q.order == "desc", After: q.after}
	for page, err := range deadletter.Pages(ctx, m.Log, q.in, scan, deadPage) {
		if err != nil {
			return err
		}
		var dead []eventlog.Dead
		size := 0
		for _, rec := range page {
			size += rec.Size()
			if d, ok := eventlog.ReadDead(rec); ok && q.selects(&d) {
				dead = append(dead, d)
			}
		}
		if err := q.held.TryTake(size); err != nil {
			return err
		}
		more := true
		if len(dead) > 0 {
			more, err = visit(dead)
		}
		q.held.Give(size)
		if !more || err != nil {
			return err
		}
	}
	return nil
}

// count counts the selected dead letters, without those in over: these were redriven and have died
// again. Their next dead letters are stored already, and they are about to be removed.
func (m *handlers) count(ctx context.Context, q deadLetters) (total int, over map[string]bool, err error) {
	over = map[string]bool{}
	q.after = nil
	err = m.eachDead(ctx, q, func(dead []eventlog.Dead) (bool, error) {
		total += len(dead)
		for _, d := range dead {
			before := eventlog.LetterBefore(d.Letter.ID)
			if before == "" || over[before] {
				continue
			}
			if err := q.held.TryTake(bytesOfID); err != nil {
				return false, err
			}
			over[strings.Clone(before)] = true
		}
		return true, nil
	})
	if err != nil || len(over) == 0 {
		return total, over, err
	}
	return total, over, m.eachDead(ctx, q, func(dead []eventlog.Dead) (bool, error) {
		for _, d := range dead {
			if over[d.Letter.ID] {
				total--
			}
		}
		return true, nil
	})
}

// bytesOfID is what an id that is remembered takes, about.
const bytesOfID = 128

// redriven reports for each dead letter whether it is to be delivered again.
func (m *handlers) redriven(ctx context.Context, topic string, dead []eventlog.Dead) ([]bool, error) {
	rs := make([]eventlog.Redrive, len(dead))
	for i := range dead {
		rs[i] = dead[i].Redrive()
	}
	if len(rs) == 0 {
		return nil, nil
	}
	has, err := m.Log.HasRedrives(ctx, topic, rs)
	if errors.Is(err, eventlog.ErrNotFound) {
		return make([]bool, len(rs)), nil
	}
	return has, err
}

func (m *handlers) listDeadLetters(caller *session.Session, _ http.ResponseWriter, r *httpapi.Request) (any, error) {
	q, limit, err := m.deadQuery(caller, r)
	defer q.held.Free()
	if err != nil {
		return nil, err
	}
	total, over, err := m.count(r.Context(), q)
	if err != nil {
		return nil, err
	}
	out := deadLetterList{Total: total, Dead: []deadLetterInfo{}}
	var page []eventlog.Dead
	size, more := 0, false
	err = m.eachDead(r.Context(), q, func(dead []eventlog.Dead) (bool, error) {
		for _, d := range dead {
			if over[d.Letter.ID] {
				continue
			}
			if more = len(page) == limit || size >= maxPageBytes; more {
				return false, nil
			}
			if err := q.held.TryTake(d.Letter.Size()); err != nil {
				return false, err
			}
			page, size = append(page, d), size+d.Letter.Size()
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	if more {
		last := page[len(page)-1].Letter
		out.Next = nextCursor(q.order[:1] + pointText(last.TS, last.ID))
	}
	redriven, err := m.redriven(r.Context(), q.topic, page)
	if err != nil {
		return nil, err
	}
	for i := range page {
		d := &page[i]
		info := deadLetterInfo{
			ID: d.ID, Event: d.Event.ID, Group: d.Group, Reason: d.Reason, Attempts: d.Attempts,
			DiedAt: d.Letter.TS, State: stateDead,
		}
		if caller.SeesContent() {
			info.Content = codec.AppendEventJSON(nil, &d.Event.Event)
		} else if info.Content, err = json.Marshal(placeOf(&d.Event.Event)); err != nil {
			return nil, err
		}
		if redriven[i] {
			info.State = stateRedriven
		}
		out.Dead = append(out.Dead, info)
	}
	return out, nil
}

// deadQuery reads the parameters of a list.
func (m *handlers) deadQuery(caller *session.Session, r *httpapi.Request) (q deadLetters, limit int, err error) {
	q = deadOf(caller, r)
	if err := mayJoin(caller, r); err != nil {
		return q, 0, err
	}
	limit, cursor, err := limitAndCursor(r)
	if err != nil {
		return q, 0, err
	}
	q.group, q.reason, q.order = r.Text("group"), r.Text("reason"), r.Text("order")
	if cursor != "" {
		q.order, q.after = map[byte]string{'a': "asc", 'd': "desc"}[cursor[0]], pointIn(cursor[1:])
		if q.order == "" || q.after == nil {
			return q, 0, errCursor()
		}
		if r.Has("order") && q.order != r.Text("order") {
			return q, 0, httpapi.BadParam("order", "the cursor is for the other order")
		}
	}
	return q, limit, nil
}

// deadOf selects all dead letters of the request's topic of the groups that its sender may
// subscribe with.
func deadOf(caller *session.Session, r *httpapi.Request) deadLetters {
	q := deadLetters{topic: r.PathValue("topic"), held: caller.Hold()}
	allowed := map[string]bool{}
	q.sees = func(group string) bool {
		is, known := allowed[group]
		if !known {
			is = caller.May(access.Subscribe, q.topic, group) == nil
			allowed[group] = is
		}
		return is
	}
	return q
}
