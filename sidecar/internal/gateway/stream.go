package gateway

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

const (
	// heartbeat is how often a stream says that it is alive.
	heartbeat = 15 * time.Second
	// streamPiece is how much is written between two looks at the clock.
	streamPiece = 64 << 10
)

// stream is one connection that is sent events (server-sent events). The request's goroutine alone
// writes to it.
type stream struct {
	subKey
	feed
	groups   *group.Manager
	who      access.Identity
	bound    int
	budget   *budget.Budget
	release  func()          // lets go of the connection's delivery bucket
	ready    pause.Wake      // has a value when there is something to write
	over     context.Context // ends when the stream is to end
	cancel   context.CancelFunc
	finished chan struct{} // closed once it has
	last     string        // the event that the client was sent last by another stream; "": it says of none

	mu       sync.Mutex
	trail    *trail
	out      *http.ResponseController // nil once nothing is written any more
	buf      []byte                   // to be written
	leases   []group.Lease            // of what is in it, with a group
	coming   []step                   // likewise, to be on the trail once it is written
	going    []step                   // of what is with the writer
	queued   int                      // bytes in buf and with the writer
	refused  bool                     // there is no room until half of the bound is free
	lastWord time.Time                // not zero: the deadline of all writes
	how      group.Leaving
}

// Room reports whether the client reads fast enough to be sent more.
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

// appendSent appends an event as a stream sends it.
func appendSent(b []byte, e *wire.Event) []byte {
	b = append(append(append(b, "id: "...), e.ID...), "\ndata: "...)
	return append(codec.AppendEventJSON(b, e), "\n\n"...)
}

// swap returns the text to write. Deliver fills spare next, whose text is written.
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

// serve writes until the client has gone or reads nothing for too long, or the stream is ended.
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
				s.groups.AckLeases(s.topic, s.group, leases, func(error) {}) // where it fails, they come again
			}
		}
	}
}

// write puts text on the socket, for as long as the client takes something.
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

// end ends the stream. A write under way has until then.
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

// finish ends the subscription; nothing is written from then on. An event that was not begun to be
// written counts no attempt: a client that disconnects again and again makes no dead letters of
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
