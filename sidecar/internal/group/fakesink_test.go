package group

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// fakeSink keeps its deliveries.
type fakeSink struct {
	deliver func(d Delivery) // if set, is called for every delivery

	mu   sync.Mutex
	full bool
	got  []Delivery
	size int // of the last call
}

func (s *fakeSink) Room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.full
}

func (s *fakeSink) setFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

func (s *fakeSink) Deliver(ds []Delivery) {
	if s.deliver != nil {
		for _, d := range ds {
			s.deliver(d)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, ds...)
	s.size = 0
	for _, d := range ds {
		s.size += d.Record.Size()
	}
}

// waiting is how many deliveries came since the last take.
func (s *fakeSink) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

// take returns the deliveries since the last take, as "id/attempt id/attempt …".
func (s *fakeSink) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, d := range s.got {
		out = append(out, d.Record.ID+"/"+string(rune('0'+d.Attempt)))
	}
	s.got = nil
	return strings.Join(out, " ")
}

// fakePacer gives one token per interval; the zero value has no limit.
type fakePacer struct {
	every time.Duration

	mu   sync.Mutex
	next time.Time
}

func (p *fakePacer) Take(now time.Time) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait := p.next.Sub(now); wait > 0 {
		return wait, false
	}
	p.next = now.Add(p.every)
	return 0, true
}

// fakeDeadLetters is the dead letter topics.
type fakeDeadLetters struct {
	log *fakeLog // that keeps the dead letters, if any

	mu       sync.Mutex
	err      error
	hold     bool
	held     []func(error)
	appended []*eventlog.Record
	onAppend func(*eventlog.Record) // if set, is called for each record that has become durable
}

func (d *fakeDeadLetters) AppendDeadLetter(_ context.Context, rec *eventlog.Record, done func(error)) {
	d.mu.Lock()
	err, hold := d.err, d.hold
	if hold {
		d.held = append(d.held, func(err error) { d.append(rec, err, done) })
	}
	d.mu.Unlock()
	if !hold {
		d.append(rec, err, done)
	}
}

func (d *fakeDeadLetters) append(rec *eventlog.Record, err error, done func(error)) {
	d.mu.Lock()
	if err == nil {
		d.appended = append(d.appended, rec)
	}
	on := d.onAppend
	d.mu.Unlock()
	if err == nil && d.log != nil {
		d.log.keepDead(rec)
	}
	if err == nil && on != nil {
		on(rec)
	}
	done(err)
}

func (d *fakeDeadLetters) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// release ends the appends that are held.
func (d *fakeDeadLetters) release(err error) {
	d.mu.Lock()
	held := d.held
	d.held, d.hold = nil, false
	d.mu.Unlock()
	for _, done := range held {
		done(err)
	}
}
