package gateway

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

const (
	// heartbeat is how often a stream sends a sign of life.
	heartbeat = 15 * time.Second
	// streamPiece is how much is written between two looks at the clock.
	streamPiece = 64 << 10
)

// stream is one connection that receives events (server-sent events). Only the request's goroutine
// writes to it.
type stream struct {
	subKey
	feed
	groups   *group.Manager
	caller   *session.Session
	bound    int
	budget   *budget.Budget
	release  func()          // releases the connection's delivery bucket
	ready    pause.Wake      // has a value when there is something to write
	over     context.Context // ends to end the stream
	cancel   context.CancelFunc
	finished chan struct{} // closed once the stream has ended
	last     string        // the last event from an earlier stream; "": none

	mu       sync.Mutex
	trail    *trail
	out      *http.ResponseController // nil once nothing is written any more
	buf      []byte                   // to be written
	leases   []group.Lease            // of the events in buf, with a group
	coming   []step                   // likewise; they join the trail once written
	going    []step                   // of the events being written
	queued   int                      // bytes in buf and being written
	refused  bool                     // there is no room until half of the bound is free
	lastWord time.Time                // if not zero, the deadline of all writes
	how      group.Leaving
}

// Room reports whether the client reads fast enough to get more.
func (s *stream) Room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued >= s.bound || s.queued > 0 && s.budget.Full() {
		s.refused = true
	}
	return !s.refused
}

// Deliver puts events into the buffer.
func (s *stream) Deliver(ds []group.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.buf)
	for i := range ds {
		e := &ds[i].Record.Event
		s.buf = appendSent(s.buf, e)
		if s.group == "" {
			s.trail.add(stepOf(e))
			continue
		}
		s.leases, s.coming = append(s.leases, ds[i].Lease), append(s.coming, stepOf(e))
	}
	s.queued += len(s.buf) - before
	s.budget.Take(len(s.buf) - before)
	s.ready.Set()
}

// appendSent appends an event in the format of a stream.
func appendSent(b []byte, e *wire.Event) []byte {
	b = append(append(append(b, "id: "...), e.ID...), "\ndata: "...)
	return append(codec.AppendEventJSON(b, e), "\n\n"...)
}

// swap returns the text to write. Deliver fills spare next, which was written before.
func (s *stream) swap(spare []byte) (text []byte, leases []group.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cap(spare) > keepScratch {
		spare = nil
	}
	text, leases = s.buf, s.leases
	s.buf, s.leases = spare[:0], nil
	s.going, s.coming = s.coming, nil
	return text, leases
}

// wrote accounts for bytes of events that are on the socket.
func (s *stream) wrote(n int) {
	s.mu.Lock()
	for _, st := range s.going {
		s.trail.add(st)
	}
	s.going = nil
	s.queued -= n
	s.budget.Give(n)
	wake := s.refused && s.queued <= s.bound/2
	if wake {
		s.refused = false
	}
	s.mu.Unlock()
	if wake {
		s.Wake()
	}
}

// serve writes until the client is gone, reads nothing for too long, or the stream is ended.
func (s *stream) serve(w http.ResponseWriter, r *http.Request, patience time.Duration) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	var text []byte
	var leases []group.Lease
	for {
		select {
		case <-s.over.Done():
			return nil
		case <-r.Context().Done():
			return r.Context().Err()
		case <-beat.C:
			if err := s.write(w, []byte(":\n\n"), patience); err != nil {
				return err
			}
		case <-s.ready:
			text, leases = s.swap(text)
			if err := s.write(w, text, patience); err != nil {
				return err
			}
			s.wrote(len(text))
			if len(leases) > 0 {
				s.groups.AckLeases(s.topic, s.group, leases, func(error) {}) // without the ack they are delivered again
			}
		}
	}
}

// write puts text on the socket as long as the client accepts data.
func (s *stream) write(w http.ResponseWriter, text []byte, patience time.Duration) error {
	for len(text) > 0 {
		piece := text[:min(len(text), streamPiece)]
		text = text[len(piece):]
		s.mu.Lock()
		due := time.Now().Add(patience)
		if !s.lastWord.IsZero() {
			due = s.lastWord
		}
		_ = s.out.SetWriteDeadline(due)
		s.mu.Unlock()
		if _, err := w.Write(piece); err != nil {
			return err
		}
		if err := s.out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// end ends the stream. A write under way may continue until then.
func (s *stream) end(how group.Leaving, by time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over.Err() == nil {
		s.how = how
		s.cancel()
	}
	s.lastWord = by
	if s.out != nil {
		_ = s.out.SetWriteDeadline(by)
	}
}

// finish ends the subscription; nothing is written after that. An event whose writing has not begun
// counts no attempt. So a client that disconnects again and again does not cause dead letters of
// events that it has not seen.
func (s *stream) finish() {
	s.Pause()
	s.mu.Lock()
	how, leases := s.how, s.leases
	_ = s.out.SetWriteDeadline(time.Time{}) // for the next answer on this connection
	s.out = nil
	s.budget.Give(s.queued)
	s.queued = 0
	s.mu.Unlock()
	if len(leases) > 0 {
		s.groups.ReturnLeases(s.topic, s.group, leases)
	}
	s.Close(how)
	s.release()
}
