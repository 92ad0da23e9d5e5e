package receive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi/coding"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

const (
	// maxEager is how much room is made at a time for a body of which only a part has arrived.
	maxEager = 64 << 10
	// maxDiscard and discardTime bound the reading of a body that is too long.
	maxDiscard  = 64 << 20
	discardTime = 5 * time.Second
	// stopLinger is how long a body may still take to arrive once the sidecar stops.
	stopLinger = 2 * time.Second
)

// Bodies reads the bodies of requests.
type Bodies struct {
	// Timeout is how long a body may take to arrive, and Silence how long nothing more of it may
	// come.
	Timeout, Silence time.Duration
	Metrics          *telemetry.Metrics
	Stopping         context.Context // ends when the sidecar begins to stop
}

// Read reads the whole body of at most so many bytes, in the memory of the client. After an error the deadline stays in force,
// for the rest of the body that the server still reads. The request keeps its memory until then.
func (b *Bodies) Read(memory *budget.Share, w http.ResponseWriter, r *http.Request, most int) ([]byte, *wire.Error) {
	u := &upload{
		body: http.MaxBytesReader(w, r.Body, int64(most)), conn: http.NewResponseController(w),
		silence: b.Silence, end: time.Now().Add(b.Timeout),
	}
	if r.ContentLength > int64(most) {
		u.discard(r)
		return nil, errTooLarge(most)
	}
	if b.Stopping.Err() != nil {
		return nil, refusal.Stopping()
	}
	// A client that sends nothing more must not delay a stop until its deadline.
	defer context.AfterFunc(b.Stopping, func() { u.fix(time.Now().Add(stopLinger)) })()
	m := Message{
		B:      make([]byte, 0, min(max(r.ContentLength, 0), FreeBytes)+minRoom),
		Budget: memory, AtMost: most, Expected: int(r.ContentLength),
	}
	err := m.ReadAll(u)
	if kind, _ := coding.OfBody(r.Header); err == nil && kind != coding.Identity {
		u.fix(time.Time{})
		return b.decode(memory, r, kind, &m)
	}
	m.keep(r, err)
	var tooLarge *http.MaxBytesError
	full, noMemory := err.(*NoMemory)
	switch late := errors.Is(err, os.ErrDeadlineExceeded); {
	case err == nil:
		u.fix(time.Time{}) // no deadline for the next request on this connection
		return m.B, nil
	case noMemory:
		b.Metrics.Shed(telemetry.ShedMemory)
		u.discard(r)
		return nil, full.Refusal
	case errors.As(err, &tooLarge):
		u.discard(r)
		return nil, errTooLarge(most)
	case late && b.Stopping.Err() != nil:
		return nil, refusal.Stopping()
	case late && !time.Now().Before(u.end):
		b.Metrics.Shed(telemetry.ShedLate)
		return nil, wire.Errorf(wire.BadRequest, "the body did not arrive completely within %v", b.Timeout)
	case late:
		return nil, wire.Errorf(wire.BadRequest, "the body cannot be read to its end: nothing more came for %v", u.silence)
	}
	return nil, wire.Errorf(wire.BadRequest, "the body cannot be read to its end: %v", err)
}

// decode is the text of a body that came compressed. It has the bounds of one that did not.
func (b *Bodies) decode(memory *budget.Share, r *http.Request, kind string, from *Message) ([]byte, *wire.Error) {
	defer from.Free()
	m := Message{B: make([]byte, 0, minRoom), Budget: memory, AtMost: from.AtMost}
	err := coding.Decode(kind, bytes.NewReader(from.B), func(text io.Reader) error {
		return m.ReadAll(io.LimitReader(text, int64(m.AtMost)+1))
	})
	m.keep(r, err)
	full, noMemory := err.(*NoMemory)
	switch {
	case noMemory:
		b.Metrics.Shed(telemetry.ShedMemory)
		return nil, full.Refusal
	case err != nil:
		return nil, wire.Errorf(wire.BadRequest, "the body is not %s, as Content-Encoding says: %v", kind, err)
	case len(m.B) > m.AtMost:
		m.Free()
		return nil, errTooLarge(m.AtMost)
	}
	return m.B, nil
}

func errTooLarge(most int) *wire.Error {
	return wire.Errorf(wire.PayloadTooLarge, "the body is longer than the %d bytes that are allowed", most)
}

// upload is a request's body while it is read. Each Read has a deadline, and end is the deadline of
// the whole body. Once the sidecar stops, the body has only a short time left.
type upload struct {
	body    io.Reader
	conn    *http.ResponseController
	silence time.Duration
	end     time.Time

	mu    sync.Mutex
	fixed bool // the deadline does not change any more
}

// Read waits for more of the body, up to a deadline.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	if !u.fixed {
		deadline := time.Now().Add(u.silence)
		if deadline.After(u.end) {
			deadline = u.end
		}
		_ = u.conn.SetReadDeadline(deadline)
	}
	u.mu.Unlock()
	return u.body.Read(p)
}

// fix sets the final deadline, unless it is set.
func (u *upload) fix(deadline time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.fixed {
		u.fixed = true
		_ = u.conn.SetReadDeadline(deadline)
	}
}

// discard reads the rest of a body that is too large, for a short time. Without that a client that
// reads the answer only after its whole body would see a broken connection, and not the refusal. A
// client that waits for "100 Continue" does not get it.
func (u *upload) discard(r *http.Request) {
	if r.Header.Get("Expect") != "" {
		return
	}
	u.fix(time.Now().Add(discardTime))
	if _, err := io.CopyN(io.Discard, r.Body, maxDiscard); errors.Is(err, io.EOF) {
		_ = u.conn.SetReadDeadline(time.Time{}) // for the next request on this connection
	}
}
