package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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

	// Topics is how many topics the requests go to in turn, with names that begin with Topic; 0: to Topic.
	Topics int `json:"topics,omitempty"`
	// For is how long to publish, where Events is 0.
	For time.Duration `json:"-"`
	// Patience is how long requests may have no answer at all before the run ends; 0: for ever.
	Patience time.Duration `json:"-"`
	// Limited is true where a limit of the rate is what is measured: its refusals are counted, and end nothing.
	Limited bool `json:"-"`
	// Open opens a connection to something else than a sidecar; nil: to URL.
	Open func(context.Context, Publishing) (Carrier, error) `json:"-"`
}

// sends is how many requests the load is at most.
func (p *Publishing) sends() int {
	if p.Events == 0 {
		return math.MaxInt
	}
	return (p.Events + p.Batch - 1) / p.Batch
}

// eventsOf is how many events a request has: only the last may have fewer.
func (p *Publishing) eventsOf(send int) int {
	if p.Events == 0 {
		return p.Batch
	}
	return min(p.Batch, p.Events-send*p.Batch)
}

// topicOf is the topic of a request.
func (p *Publishing) topicOf(send int) string {
	if p.Topics == 0 {
		return p.Topic
	}
	return TopicNumber(p.Topic, send%p.Topics)
}

// A Publisher is a load whose connections are open.
type Publisher struct {
	plan  Publishing
	keys  []string
	clock clock
	sleep func(time.Duration)
	lanes []*lane
	until int64  // of the clock, when the last request is sent; 0: Events says
	tally *Tally // of all lanes, once they are done
	done  atomic.Int64
}

// mostThreads is how many lanes may hold a thread while they wait for a send's time.
const mostThreads = 64

// NewPublisher opens the connections.
func NewPublisher(ctx context.Context, plan Publishing) (*Publisher, error) {
	p := &Publisher{plan: plan, keys: make([]string, plan.Keys), clock: newClock(), tally: newTally(), sleep: preciseSleep}
	if plan.Connections > mostThreads {
		p.sleep = time.Sleep
	}
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
	if p.plan.Events == 0 {
		p.until = start + int64(p.plan.For)
	}
	times := newSchedule(start, p.plan.Rate, p.plan.Batch)
	var running, watching sync.WaitGroup
	over := make(chan struct{})
	watching.Go(func() { p.watch(over, stop) })
	for _, l := range p.lanes {
		running.Go(func() { l.run(ctx, stop, times) })
	}
	running.Wait()
	close(over)
	watching.Wait()
	took := time.Duration(p.clock.now() - start)
	for _, l := range p.lanes {
		p.tally.merge(l.tally)
	}
	return p.tally, took, context.Cause(ctx)
}

// watch ends the run where requests wait for their answers and none comes.
func (p *Publisher) watch(over <-chan struct{}, stop context.CancelCauseFunc) {
	if p.plan.Patience == 0 {
		return
	}
	for last := int64(-1); ; {
		select {
		case <-over:
			return
		case <-time.After(p.plan.Patience):
		}
		now := p.Done()
		if now == last && p.waits() {
			stop(fmt.Errorf("no publish was answered for %v, after %d events", p.plan.Patience, now))
			p.Close()
			return
		}
		last = now
	}
}

// waits reports whether a request has no answer.
func (p *Publisher) waits() bool {
	return slices.ContainsFunc(p.lanes, func(l *lane) bool { return len(l.free) < p.plan.Depth })
}

// over reports whether the time of a load that has one has passed for a send.
func (p *Publisher) over(send int, times schedule) bool {
	at := p.clock.now()
	if times.open() {
		at = max(at, times.at(send))
	}
	return p.until > 0 && at >= p.until
}

// Close ends the connections. After Run it does nothing.
func (p *Publisher) Close() {
	for _, l := range p.lanes {
		l.carrier.Close()
	}
}

// lane is one connection of a load.
type lane struct {
	publisher *Publisher
	number    int
	carrier   Carrier
	events    []wire.Event // of one request; encoded before the next is made
	free      chan *Slot   // places in the pipeline
	stop      context.CancelCauseFunc

	mu    sync.Mutex
	tally *Tally
}

// A Slot is a place in a lane's pipeline. Its callbacks are made once, so that a send makes no
// garbage.
type Slot struct {
	lane   *lane
	t0     int64 // from when the latency counts
	events int

	onReceipt func(wire.Receipt, error)
	onResults func([]wire.ResultItem, error)
}

// Answered is the answer to all events of the slot, of a peer: they are accepted, or err.
func (s *Slot) Answered(err error) {
	if err != nil {
		s.fail(err)
		return
	}
	s.accepted(s.events, s.events)
}

func newLane(p *Publisher, number int, c Carrier) *lane {
	l := &lane{publisher: p, number: number, carrier: c, free: make(chan *Slot, p.plan.Depth), tally: newTally()}
	for range p.plan.Batch {
		l.events = append(l.events, wire.Event{Topic: p.plan.Topic, Payload: newPayload(p.plan.Size)})
	}
	for range p.plan.Depth {
		s := &Slot{lane: l}
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
		if send > 0 && p.over(send, times) { // the first is sent in any case: a machine may be too busy to begin within a short time
			break
		}
		if times.open() && !p.clock.wait(times.at(send), ctx.Done(), p.sleep) {
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
		if err := l.carrier.Send(l.prepare(s, send), s); err != nil {
			s.fail(err)
			stop(err)
			break
		}
	}
	if err := l.carrier.Flush(); err != nil {
		stop(err)
	}
}

// place takes a place in the pipeline.
func (l *lane) place(ctx context.Context) (*Slot, bool) {
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
func (l *lane) prepare(s *Slot, send int) []wire.Event {
	events := l.events[:s.events]
	topic := l.publisher.plan.topicOf(send)
	for i := range events {
		events[i].Topic = topic
		stamp(events[i].Payload, s.t0)
		if keys := l.publisher.keys; len(keys) > 0 {
			events[i].Key = keys[(send*l.publisher.plan.Batch+i)%len(keys)]
		}
	}
	return events
}

// receipt is the answer to a single event.
func (s *Slot) receipt(r wire.Receipt, err error) {
	if err != nil {
		s.fail(err)
		return
	}
	if l := s.lane; r.Duplicate {
		l.mu.Lock()
		l.tally.Duplicates++
		l.mu.Unlock()
	}
	s.accepted(1, 1)
}

// results is the answer to a batch.
func (s *Slot) results(results []wire.ResultItem, err error) {
	if err != nil {
		s.fail(err)
		return
	}
	l := s.lane
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
	l.mu.Unlock()
	s.accepted(accepted, s.events)
}

// accepted counts the events of the slot that were accepted, and gives it back.
func (s *Slot) accepted(n, of int) {
	l := s.lane
	took := time.Duration(l.publisher.clock.now() - s.t0)
	l.mu.Lock()
	if n > 0 {
		l.tally.Latency.RecordN(took, n)
		l.tally.Done += n
	}
	l.mu.Unlock()
	l.publisher.done.Add(int64(of))
	l.free <- s
}

// fail counts all events of the slot as failed.
func (s *Slot) fail(err error) {
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
	if _, refusal := errors.AsType[*wire.Error](err); !refusal || RateLimited(err) && !l.publisher.plan.Limited {
		l.stop(err)
	}
}
