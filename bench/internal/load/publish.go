package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Publishing is a load of publishes.
type Publishing struct {
	URL         string  `json:"url"`
	Token       string  `json:"-"`
	Transport   string  `json:"transport"` // TransportWS or TransportHTTP
	Topic       string  `json:"topic"`
	Events      int     `json:"events"`
	Size        int     `json:"size"` // bytes of a payload, at least MinSize
	Connections int     `json:"connections"`
	Depth       int     `json:"depth"` // requests of a connection without an answer; 1 is synchronous
	Batch       int     `json:"batch"` // events of a request
	Keys        int     `json:"keys"`  // different keys; 0: no keys
	Rate        float64 `json:"rate"`  // events a second of all connections; 0: as fast as it goes
}

// sends is how many requests the load is.
func (p *Publishing) sends() int { return (p.Events + p.Batch - 1) / p.Batch }

// eventsOf is how many events a request has: only the last may have fewer.
func (p *Publishing) eventsOf(send int) int { return min(p.Batch, p.Events-send*p.Batch) }

// A Publisher is a load whose connections are open.
type Publisher struct {
	plan  Publishing
	keys  []string
	clock clock
	lanes []*lane
	tally *Tally // of all lanes, once they are done
	done  atomic.Int64
}

// NewPublisher opens the connections.
func NewPublisher(ctx context.Context, plan Publishing) (*Publisher, error) {
	p := &Publisher{plan: plan, keys: make([]string, plan.Keys), clock: newClock(), tally: newTally()}
	for i := range p.keys {
		p.keys[i] = fmt.Sprintf("key-%d", i)
	}
	for number := range plan.Connections {
		carrier, err := plan.open(ctx)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.lanes = append(p.lanes, newLane(p, number, carrier))
	}
	return p, nil
}

// Done is how many events were answered so far. It may be called at any time.
func (p *Publisher) Done() int64 { return p.done.Load() }

// Run publishes, until everything is answered or ctx ends, and closes the connections. A rate limit
// ends the run, too; the error is then that refusal. The tally is whole in any case, the duration
// from the first send to the last answer. A Publisher runs once.
func (p *Publisher) Run(ctx context.Context) (*Tally, time.Duration, error) {
	defer p.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	start := p.clock.now()
	times := newSchedule(start, p.plan.Rate, p.plan.Batch)
	var running sync.WaitGroup
	for _, l := range p.lanes {
		running.Go(func() { l.run(ctx, stop, times) })
	}
	running.Wait()
	took := time.Duration(p.clock.now() - start)
	for _, l := range p.lanes {
		p.tally.merge(l.tally)
	}
	return p.tally, took, context.Cause(ctx)
}

// Close ends the connections. After Run it does nothing.
func (p *Publisher) Close() {
	for _, l := range p.lanes {
		l.carrier.close()
	}
}

// lane is one connection of a load.
type lane struct {
	publisher *Publisher
	number    int
	carrier   carrier
	events    []wire.Event // of one request; encoded before the next is made
	free      chan *slot   // places in the pipeline
	stop      context.CancelCauseFunc

	mu    sync.Mutex
	tally *Tally
}

// slot is a place in a lane's pipeline. Its callbacks are made once, so that a send makes no
// garbage.
type slot struct {
	lane   *lane
	t0     int64 // from when the latency counts
	events int

	onReceipt func(wire.Receipt, error)
	onResults func([]wire.ResultItem, error)
}

func newLane(p *Publisher, number int, c carrier) *lane {
	l := &lane{publisher: p, number: number, carrier: c, free: make(chan *slot, p.plan.Depth), tally: newTally()}
	for range p.plan.Batch {
		l.events = append(l.events, wire.Event{Topic: p.plan.Topic, Payload: newPayload(p.plan.Size)})
	}
	for range p.plan.Depth {
		s := &slot{lane: l}
		s.onReceipt, s.onResults = s.receipt, s.results
		l.free <- s
	}
	return l
}

// run makes the lane's share of the sends: with n lanes every nth, from the lane's number on.
func (l *lane) run(ctx context.Context, stop context.CancelCauseFunc, times schedule) {
	l.stop = stop
	p := l.publisher
	for send := l.number; send < p.plan.sends(); send += len(p.lanes) {
		if times.open() && !p.clock.wait(times.at(send), ctx.Done()) {
			break
		}
		s, ok := l.place(ctx)
		if !ok {
			break
		}
		if s.t0 = p.clock.now(); times.open() {
			s.t0 = times.at(send)
		}
		s.events = p.plan.eventsOf(send)
		if err := l.carrier.send(l.prepare(s, send), s); err != nil {
			s.fail(err)
			stop(err)
			break
		}
	}
	if err := l.carrier.flush(); err != nil {
		stop(err)
	}
}

// place takes a place in the pipeline.
func (l *lane) place(ctx context.Context) (*slot, bool) {
	select {
	case s := <-l.free:
		return s, ctx.Err() == nil
	default:
	}
	select {
	case s := <-l.free:
		return s, true
	case <-ctx.Done():
		return nil, false
	}
}

// prepare stamps the events of a send.
func (l *lane) prepare(s *slot, send int) []wire.Event {
	events := l.events[:s.events]
	for i := range events {
		stamp(events[i].Payload, s.t0)
		if keys := l.publisher.keys; len(keys) > 0 {
			events[i].Key = keys[(send*l.publisher.plan.Batch+i)%len(keys)]
		}
	}
	return events
}

// receipt is the answer to a single event.
func (s *slot) receipt(r wire.Receipt, err error) {
	if err != nil {
		s.fail(err)
		return
	}
	l := s.lane
	l.mu.Lock()
	l.tally.Latency.Record(time.Duration(l.publisher.clock.now() - s.t0))
	l.tally.Done++
	if r.Duplicate {
		l.tally.Duplicates++
	}
	l.mu.Unlock()
	l.publisher.done.Add(1)
	l.free <- s
}

// results is the answer to a batch.
func (s *slot) results(results []wire.ResultItem, err error) {
	if err != nil {
		s.fail(err)
		return
	}
	l := s.lane
	took := time.Duration(l.publisher.clock.now() - s.t0)
	accepted := 0
	l.mu.Lock()
	for i := range results {
		switch {
		case results[i].Err != nil:
			l.refused(results[i].Err, 1)
			continue
		case results[i].Receipt.Duplicate:
			l.tally.Duplicates++
		}
		accepted++
	}
	if accepted > 0 {
		l.tally.Latency.RecordN(took, accepted)
		l.tally.Done += accepted
	}
	l.mu.Unlock()
	l.publisher.done.Add(int64(s.events))
	l.free <- s
}

// fail counts all events of the slot as failed.
func (s *slot) fail(err error) {
	l := s.lane
	l.mu.Lock()
	l.refused(err, s.events)
	l.mu.Unlock()
	l.publisher.done.Add(int64(s.events))
	l.free <- s
}

// refused counts n events, and ends the run if it is useless to go on.
func (l *lane) refused(err error, n int) {
	l.tally.fail(err, n)
	if _, refusal := errors.AsType[*wire.Error](err); !refusal || RateLimited(err) {
		l.stop(err)
	}
}
