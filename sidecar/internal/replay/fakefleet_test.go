package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// place is one part of a fake fleet.
type place struct {
	name   string
	events []*eventlog.Record // ascending
	away   bool
}

// fakeFleet is a Fleet over slices, as simple as its promises allow. Ids are unique in it.
type fakeFleet struct {
	places  []*place
	members []Member
	asked   []FleetQuery
	closed  int
	// block is called before each event, if set; not ready says that it may wait.
	block func(n int) error
	ready func(n int) bool
}

func (f *fakeFleet) Members(context.Context) []Member { return f.members }

func (f *fakeFleet) Lookup(_ context.Context, _, id string, partial bool) (at eventlog.Point, err error) {
	missing := f.missing()
	if len(missing) > 0 && !partial {
		return at, partialError(missing)
	}
	for _, p := range f.places {
		for _, r := range p.events {
			if r.ID == id && !p.away {
				return pointOf(r), nil
			}
		}
	}
	return at, fmt.Errorf("id %s: %w", id, eventlog.ErrNotFound)
}

func partialError(missing []string) error {
	return &wire.Error{Code: wire.PartialFleet, Msg: "part of the fleet cannot be asked", Missing: missing}
}

func (f *fakeFleet) missing() (out []string) {
	for _, p := range f.places {
		if p.away {
			out = append(out, p.name)
		}
	}
	return out
}

// Open merges, which is to sort here.
func (f *fakeFleet) Open(ctx context.Context, q FleetQuery) (FleetStream, error) {
	f.asked = append(f.asked, q)
	s := &fakeStream{fleet: f, ctx: ctx, query: q, lost: f.missing()}
	if len(s.lost) > 0 && !q.Partial {
		return nil, partialError(s.lost)
	}
	for i, p := range f.places {
		scan := q.Scan
		if at := slices.IndexFunc(q.Behind, func(b Behind) bool { return b.Part == p.name }); at >= 0 {
			if scan.After = q.Behind[at].At; scan.After == nil {
				scan.After = q.Start
			}
			s.late = append(s.late, p)
		} else if p.away {
			s.late = append(s.late, p)
		}
		s.starts = append(s.starts, scan.After)
		s.parts = append(s.parts, PartCount{Part: p.name})
		if p.away {
			continue
		}
		page, err := newMemory(slices.Clone(p.events)...).Scan(ctx, "orders", scan, eventlog.Bounds{Events: 1 << 20})
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			s.events = append(s.events, sent{r, i})
		}
	}
	slices.SortFunc(s.events, func(a, b sent) int {
		if q.Scan.Descending {
			a, b = b, a
		}
		return cmp.Or(pointOf(a.rec).Compare(pointOf(b.rec)))
	})
	return s, nil
}

// sent is an event and the part that it comes from.
type sent struct {
	rec  *eventlog.Record
	from int
}

type fakeStream struct {
	fleet  *fakeFleet
	ctx    context.Context
	query  FleetQuery
	events []sent
	starts []*eventlog.Point
	late   []*place
	lost   []string
	parts  []PartCount
	n      int
	last   *eventlog.Point
	text   []byte
}

func (s *fakeStream) Next() (eventlog.Point, []byte, error) {
	if s.fleet.block != nil {
		if err := s.fleet.block(s.n); err != nil {
			return eventlog.Point{}, nil, err
		}
	}
	if s.n == len(s.events) {
		return eventlog.Point{}, nil, io.EOF
	}
	e := s.events[s.n]
	s.n++
	s.parts[e.from].Events++
	s.last = new(pointOf(e.rec))
	for i := range s.text {
		s.text[i] = '!' // it was valid until now
	}
	s.text = codec.AppendEventJSON(s.text[:0], &e.rec.Event)
	return *s.last, s.text, nil
}

func (s *fakeStream) Ready() bool       { return s.fleet.ready == nil || s.fleet.ready(s.n) }
func (s *fakeStream) Missing() []string { return s.lost }
func (s *fakeStream) Close()            { s.fleet.closed++ }

func (s *fakeStream) Parts() []PartCount { return slices.Clone(s.parts) }

func (s *fakeStream) Behind() (out []Behind) {
	for _, p := range s.late {
		i := slices.Index(s.fleet.places, p)
		at := s.starts[i]
		if !p.away {
			after := s.query.Scan.After
			if order := s.last.Compare(*after); order == 0 || order > 0 != s.query.Scan.Descending {
				continue // it is as far as the others
			}
			// The part ends at the last event, unless it began behind that.
			if at == nil || s.last.Compare(*at) > 0 != s.query.Scan.Descending {
				at = s.last
			}
		}
		out = append(out, Behind{Part: p.name, At: at})
	}
	return out
}

// newFleetHandler has a store of its own that nobody should read.
func newFleetHandler(f *fakeFleet) http.Handler {
	m := newMemory()
	m.onScan = func(int) error { return errors.New("the store was asked") }
	return New(Config{Store: m, Fleet: f, Logger: slog.New(slog.DiscardHandler), Now: now,
		Self: func() Peer { return Peer{NodeID: "node-1", Instance: "i", StoreID: "s-1", Version: "v"} }})
}

// twoPlaces are nodes with events of their own.
func twoPlaces() *fakeFleet {
	return &fakeFleet{places: []*place{
		{name: "node-1", events: []*eventlog.Record{record(1, "a", ""), record(2, "c", "k"), record(5, "f", "")}},
		{name: "node-2 (10.0.0.2:8083)", events: []*eventlog.Record{record(2, "b", ""), record(3, "d", "k"), record(4, "e", "")}},
	}}
}
