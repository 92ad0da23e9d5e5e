package replay

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// reading yields the events that a request selects. It is for one goroutine.
type reading interface {
	// events yields the events in order. An error is the last value, and a *wire.Error if the
	// client may know it.
	events() iter.Seq2[item, error]
	// missing names the parts that are left out; it is final once events has ended.
	missing() []string
	// behind are the parts that have not come as far as the last event.
	behind() []Behind
	// parts counts the events of each part; nil if there is only one.
	parts() []PartCount
	close()
}

// item is one event: of this sidecar, or the text of an event from another sidecar, which is valid
// until the next item.
type item struct {
	at    eventlog.Point
	event *wire.Event // nil: text has it
	text  []byte
	wait  bool // the next one may take time
	beat  bool // there is no event yet
}

// open begins to read the events that s selects: at most that many, or all with 0.
func (h *handler) open(ctx context.Context, share *budget.Share, s selection, most int) (reading, error) {
	switch {
	case s.part == PartSpool:
		return h.openSpool(ctx, share, s, most)
	case s.part == PartLog:
		return &local{handler: h, ctx: ctx, share: share, source: h.Parts.Log, what: s, most: most, beat: h.Beat}, nil
	case s.scope == scopeFleet && h.Fleet != nil:
		stream, err := h.Fleet.Open(ctx, FleetQuery{
			Topic: s.topic, Scan: s.query, Start: s.start, Limit: most,
			Behind: s.behind, Partial: s.partial, Continued: s.continued, Share: share,
		})
		if err != nil {
			return nil, sourceError(err)
		}
		return &united{stream: stream, what: s}, nil
	}
	return &local{handler: h, ctx: ctx, share: share, source: h.Store, what: s, most: most}, nil
}

// openSpool freezes the spool and reads that.
func (h *handler) openSpool(ctx context.Context, share *budget.Share, s selection, most int) (reading, error) {
	in := &local{handler: h, ctx: ctx, share: share, what: s, most: most, beat: h.Beat}
	frozen, err := h.Parts.Freeze(ctx, s.topic)
	if frozen != nil {
		in.source, in.release = frozen, frozen.Close
	}
	return in, sourceError(err)
}

// local is a reading of this sidecar's own parts.
type local struct {
	handler *handler
	ctx     context.Context
	share   *budget.Share
	source  Scanner // nil: a spool that has nothing of the topic
	what    selection
	most    int
	beat    time.Duration // the time between beats while it finds no event; 0: none
	release func()        // nil: nothing
}

func (l *local) missing() []string  { return nil }
func (l *local) behind() []Behind   { return nil }
func (l *local) parts() []PartCount { return nil }

func (l *local) close() {
	if l.release != nil {
		l.release()
	}
}

func (l *local) events() iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for page, err := range l.pages() {
			if err != nil {
				yield(item{}, err)
				return
			}
			if page == nil && !yield(item{beat: true, wait: true}, nil) {
				return
			}
			for i, r := range page {
				if !yield(item{at: pointOf(r), event: &r.Event, wait: i == len(page)-1}, nil) {
					return
				}
			}
		}
	}
}

// pages reads page by page. A topic that does not exist has none; a nil page is a beat.
func (l *local) pages() iter.Seq2[[]*eventlog.Record, error] {
	return func(yield func([]*eventlog.Record, error) bool) {
		q, began := l.what.query, l.handler.Now().UnixMilli()
		alive := func() bool { return yield(nil, nil) }
		held := 0 // bytes of the page
		defer func() { l.share.Give(held) }()
		for read := 0; l.source != nil && (l.most == 0 || read < l.most); {
			b := eventlog.Bounds{Events: pageEvents, Bytes: pageBytes}
			if l.share.Full() {
				b.Events = 1
			}
			if l.most > 0 {
				b.Events = min(b.Events, l.most-read)
			}
			var page []*eventlog.Record
			err := EndAhead(&q, began, func(latest eventlog.ScanQuery) ([]*eventlog.Record, error) {
				return l.scan(latest, eventlog.Bounds{Events: 1}, alive)
			})
			if err == nil {
				page, err = l.scan(q, b, alive)
			}
			switch {
			case errors.Is(err, eventlog.ErrNotFound), errors.Is(err, errLeft):
				return
			case err != nil:
				yield(nil, sourceError(err))
				return
			}
			size := 0
			for _, r := range page {
				size += r.Size()
			}
			l.share.Take(size - held)
			held = size
			kept := l.what.aboveFloor(page)
			if len(kept) == 0 || !yield(kept, nil) || len(kept) < len(page) {
				return
			}
			read += len(page)
			last := pointOf(page[len(page)-1])
			q.After = &last
		}
	}
}

// EndAhead gives a scan without an upper end one once it has come to events ahead of the time when
// it began: the ts of the latest event there, for which it calls scan. Otherwise the scan would
// follow the topic's publishers. The ts of an event may be ahead of every clock.
func EndAhead(q *eventlog.ScanQuery, began int64, scan func(eventlog.ScanQuery) ([]*eventlog.Record, error)) error {
	if q.Descending || q.Upper() < wire.MaxTS || q.After == nil || q.After.TS <= began {
		return nil
	}
	latest, err := scan(eventlog.ScanQuery{Descending: true})
	if err != nil {
		return err
	}
	q.MaxTS, q.HasMaxTS = q.After.TS, true
	if len(latest) > 0 {
		q.MaxTS = max(q.MaxTS, latest[0].TS)
	}
	return nil
}

// errLeft says that the consumer of a reading wants no more.
var errLeft = errors.New("nobody reads on")

// scan reads one page, and calls alive whenever another beat has passed meanwhile.
func (l *local) scan(q eventlog.ScanQuery, b eventlog.Bounds, alive func() bool) ([]*eventlog.Record, error) {
	if l.beat == 0 {
		return l.source.Scan(l.ctx, l.what.topic, q, b)
	}
	ctx, cancel := context.WithCancel(l.ctx)
	var (
		page []*eventlog.Record
		err  error
		done = make(chan struct{})
	)
	go func() {
		defer close(done)
		page, err = l.source.Scan(ctx, l.what.topic, q, b)
	}()
	defer func() { // also if alive panics, as a write to a client that left does
		cancel()
		<-done
	}()
	tick := time.NewTicker(l.beat)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return page, err
		case <-tick.C:
			if !alive() {
				return nil, errLeft
			}
		}
	}
}

// united is a reading of the whole fleet.
type united struct {
	stream FleetStream
	what   selection
}

func (u *united) missing() []string  { return u.stream.Missing() }
func (u *united) behind() []Behind   { return u.stream.Behind() }
func (u *united) parts() []PartCount { return u.stream.Parts() }
func (u *united) close()             { u.stream.Close() }

func (u *united) events() iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for {
			at, text, err := u.stream.Next()
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(item{}, sourceError(err))
				return
			case u.what.floor != nil && at.Compare(*u.what.floor) <= 0:
				return
			}
			if !yield(item{at: at, text: text, wait: !u.stream.Ready()}, nil) {
				return
			}
		}
	}
}
