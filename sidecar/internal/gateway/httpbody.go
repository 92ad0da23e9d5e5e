package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

const (
	// maxEagerBody is how much room is made for a body before it has arrived: a client that
	// announces a body has not sent it yet.
	maxEagerBody = 64 << 10
	// maxDiscard and discardTime bound the reading of a body that is too long.
	maxDiscard  = 64 << 20
	discardTime = 5 * time.Second
	// uploadLinger is how long a body may still take to arrive once the sidecar stops.
	uploadLinger = 2 * time.Second
)

// upload is a request's body while it is read. Each Read has a deadline, and due is the deadline of
// the whole body. Once the sidecar stops, the body has only a short time left.
type upload struct {
	body     io.Reader
	out      *http.ResponseController
	patience time.Duration
	due      time.Time

	mu       sync.Mutex
	lastWord bool // the deadline does not change any more
}

// Read waits for more of the body, up to a deadline.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	if !u.lastWord {
		deadline := time.Now().Add(u.patience)
		if deadline.After(u.due) {
			deadline = u.due
		}
		_ = u.out.SetReadDeadline(deadline)
	}
	u.mu.Unlock()
	return u.body.Read(p)
}

// fix sets the final deadline, unless it is set.
func (u *upload) fix(deadline time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.lastWord {
		u.lastWord = true
		_ = u.out.SetReadDeadline(deadline)
	}
}

// readAtMost reads the whole body of at most so many bytes. After an error the deadline stays in
// force, for the rest of the body that the server still reads. The request keeps its memory until
// then.
func (g *Gateway) readAtMost(w http.ResponseWriter, r *http.Request, most int) ([]byte, *wire.Error) {
	u := &upload{
		body: http.MaxBytesReader(w, r.Body, int64(most)), out: http.NewResponseController(w),
		patience: g.cfg.Bounds.SlowClientTimeout, due: time.Now().Add(g.cfg.Bounds.ReceiveTimeout),
	}
	if r.ContentLength > int64(most) {
		u.discard(r)
		return nil, errBodyTooLarge(most)
	}
	if g.refusing() {
		return nil, refusal.Stopping()
	}
	// A client that sends nothing more must not delay a stop until its deadline.
	defer context.AfterFunc(g.stopping, func() { u.fix(time.Now().Add(uploadLinger)) })()
	in := intake{
		b:      make([]byte, 0, min(max(r.ContentLength, 0), maxEagerBody)+minRoom),
		budget: g.cfg.Memory, atMost: most,
	}
	err := in.readAll(u)
	if err == nil && in.taken > 0 {
		context.AfterFunc(r.Context(), in.free)
	} else {
		in.free()
	}
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		u.fix(time.Time{}) // no deadline for the next request on this connection
		return in.b, nil
	case err == errNoMemory:
		g.cfg.Metrics.Shed(telemetry.ShedMemory)
		u.discard(r)
		return nil, refusal.NoMemory(g.cfg.Memory.Limit())
	case errors.As(err, &tooLarge):
		u.discard(r)
		return nil, errBodyTooLarge(most)
	case errors.Is(err, os.ErrDeadlineExceeded) && g.refusing():
		return nil, refusal.Stopping()
	case errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(u.due):
		g.cfg.Metrics.Shed(telemetry.ShedLate)
		return nil, wire.Errorf(wire.BadRequest, "the body did not arrive completely within %v", g.cfg.Bounds.ReceiveTimeout)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, wire.Errorf(wire.BadRequest, "the body cannot be read to its end: nothing more came for %v", u.patience)
	}
	return nil, wire.Errorf(wire.BadRequest, "the body cannot be read to its end: %v", err)
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
		_ = u.out.SetReadDeadline(time.Time{}) // for the next request on this connection
	}
}

func errBodyTooLarge(most int) *wire.Error {
	return wire.Errorf(wire.PayloadTooLarge, "the body is longer than the %d bytes that are allowed", most)
}
