package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// memory is a Source over one sorted slice per topic. onScan, if set, is asked before each scan
// whether it fails.
type memory struct {
	topics map[string][]*eventlog.Record
	onScan func(n int) error
	scans  int
}

// newMemory holds the events in one topic, called orders.
func newMemory(events ...*eventlog.Record) *memory {
	slices.SortFunc(events, func(a, b *eventlog.Record) int { return pointOf(a).Compare(pointOf(b)) })
	return &memory{topics: map[string][]*eventlog.Record{"orders": events}}
}

// record is an event of the topic orders.
func record(ts int64, id, key string) *eventlog.Record {
	return &eventlog.Record{Event: wire.Event{ID: id, TS: ts, Topic: "orders", Key: key, Seq: 1, Payload: []byte(`{"n":1}`)}}
}

// many makes n events, ten to a millisecond.
func many(n, payloadBytes int) []*eventlog.Record {
	payload := slices.Concat([]byte{'"'}, slices.Repeat([]byte{'x'}, payloadBytes), []byte{'"'})
	out := make([]*eventlog.Record, n)
	for i := range out {
		out[i] = record(int64(i/10), fmt.Sprintf("id-%08d", i), "")
		out[i].Payload = payload
	}
	return out
}

func (m *memory) Scan(ctx context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	m.scans++
	if m.onScan != nil {
		if err := m.onScan(m.scans); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all, ok := m.topics[topic]
	if !ok {
		return nil, fmt.Errorf("topic %s: %w", topic, eventlog.ErrNotFound)
	}
	// In ascending order the part between the bounds is [low, high).
	before := func(p eventlog.Point, or int) int {
		i, _ := slices.BinarySearchFunc(all, p, func(r *eventlog.Record, p eventlog.Point) int {
			if c := pointOf(r).Compare(p); c != 0 {
				return c
			}
			return or
		})
		return i
	}
	low, high := before(eventlog.Point{TS: q.MinTS}, 1), len(all)
	if q.HasMaxTS {
		high = before(eventlog.Point{TS: q.MaxTS + 1}, 1)
	}
	step, at := 1, low
	if q.Descending {
		step, at = -1, high-1
	}
	if q.After != nil {
		if q.Descending {
			at = min(at, before(*q.After, 1)-1)
		} else {
			at = max(at, before(*q.After, -1))
		}
	}
	var page []*eventlog.Record
	for size := 0; low <= at && at < high && len(page) < b.Events && (b.Bytes == 0 || size < b.Bytes); at += step {
		if q.Key == nil || *q.Key == all[at].Key {
			page = append(page, all[at])
			size += all[at].Size()
		}
	}
	return page, nil
}

func (m *memory) Lookup(_ context.Context, topic, id string) (*eventlog.Record, error) {
	for _, r := range m.topics[topic] {
		if r.ID == id {
			return r, nil
		}
	}
	return nil, fmt.Errorf("topic %s, id %s: %w", topic, id, eventlog.ErrNotFound)
}

// now is the tests' present: 1,000,000 ms after the epoch.
func now() time.Time { return time.UnixMilli(1_000_000) }

func newHandler(s Source) http.Handler {
	return New(Config{Store: s, Logger: slog.New(slog.DiscardHandler), Now: now})
}

// get asks the handler directly.
func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
	return w
}

// page is the body of a replay.
type page struct {
	Topic  string `json:"topic"`
	Count  *int   `json:"count"`
	Events []struct {
		ID string `json:"id"`
		TS int64  `json:"ts"`
	} `json:"events"`
	Next  *string `json:"next"`
	Error string  `json:"error"`
	Code  string  `json:"code"`
}

func (p page) ids() []string {
	ids := make([]string, len(p.Events))
	for i, e := range p.Events {
		ids[i] = e.ID
	}
	return ids
}

// fatalist is what testing.T and rapid.T have in common.
type fatalist interface {
	Helper()
	Fatalf(format string, args ...any)
}

// replayPage asks for one page, which must be well-formed.
func replayPage(t fatalist, h http.Handler, params url.Values) page {
	t.Helper()
	w := get(h, "/replay?"+params.Encode())
	var p page
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%v: status %d, body %.200s, %v", params, w.Code, w.Body, err)
	}
	if p.Events == nil || p.Count == nil || *p.Count != len(p.Events) || p.Topic != "orders" {
		t.Fatalf("%v: body %.200s", params, w.Body)
	}
	return p
}

// values makes parameters of names and values in turn.
func values(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

func equalIDs(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
