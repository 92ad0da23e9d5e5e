package replay

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/httpapi/coding"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/cloudevent"
)

// drainAt is how much of an answer is collected before it is written.
const drainAt = 64 << 10

// body writes one answer. It collects text, compresses it if the client asked for that, and sends
// the header only with the first bytes, so that any failure before them is an ordinary error.
// Either finish or fail ends it. If the client is gone, or reads nothing for too long, a method
// that writes ends the handler by panicking with http.ErrAbortHandler, which closes the connection.
// It is for one goroutine.
type body struct {
	w      http.ResponseWriter
	r      *http.Request
	conn   *http.ResponseController
	logger *slog.Logger
	stall  time.Duration
	share  *budget.Share

	format  string
	form    codec.Form // of events of this sidecar; others are parsed where the format is not their own
	mime    string
	coding  string
	enc     coding.Encoder // nil: not compressed, or nothing written yet
	buf     []byte
	started bool // the header was sent
	// trailing says that trailers follow; announced is how many missing parts the header names.
	trailing  bool
	announced int
}

func (h *handler) newBody(w http.ResponseWriter, r *httpapi.Request, mime string) *body {
	format := r.Text("format")
	return &body{
		w: w, r: r.Request, conn: http.NewResponseController(w), logger: h.Logger, stall: h.StallTimeout, share: h.share(r.Request),
		format: format, form: cloudevent.Form(format),
		mime: mime, coding: coding.Negotiate(r.Header["Accept-Encoding"]),
	}
}

// release gives the encoder back; nothing else may be called afterwards.
func (b *body) release() {
	if b.enc != nil {
		coding.Put(b.coding, b.enc)
		b.enc = nil
		b.share.Give(coding.EncoderBytes)
	}
}

// headOnly reports whether the client wants only the header.
func (b *body) headOnly() bool { return b.r.Method == http.MethodHead }

func (b *body) text(parts ...string) {
	for _, s := range parts {
		b.buf = append(b.buf, s...)
	}
}

// json appends a value that is always valid JSON.
func (b *body) json(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	b.buf = append(b.buf, text...)
}

// event appends the event, followed by end.
func (b *body) event(it item, end string) {
	switch {
	case it.event != nil:
		b.buf = b.form(b.buf, it.event)
	case b.format == wire.FormatCloudEvents:
		ev, err := codec.ParseEvent(it.text)
		b.must(err)
		b.buf = b.form(b.buf, &ev)
	default:
		b.buf = append(b.buf, it.text...)
	}
	b.buf = append(b.buf, end...)
	if len(b.buf) >= drainAt {
		b.drain()
	}
}

// unblock ends a write that waits for the client; other goroutines may call it.
func (b *body) unblock() { _ = b.conn.SetWriteDeadline(time.Now()) }

// flush sends everything so far to the client.
func (b *body) flush() {
	b.drain()
	if b.enc != nil {
		b.must(b.enc.Flush())
	}
	b.must(b.conn.Flush())
}

// announce names in the header the parts of the fleet that are missing so far, and announces
// trailers with the final list.
func (b *body) announce(missing []string) {
	h := b.w.Header()
	h.Set("Trailer", HeaderMissing+", "+HeaderParts)
	b.trailing = true
	if b.announced = len(missing); b.announced > 0 {
		h.Set(HeaderMissing, missingText(missing))
	}
}

// finish ends a complete answer, with the announced trailers.
func (b *body) finish(in reading) {
	if b.trailing && !b.headOnly() {
		missing := in.missing()
		if len(missing) > b.announced && !b.r.ProtoAtLeast(1, 1) {
			b.abort() // HTTP/1.0 has no trailers to name them
		}
		defer func() {
			if len(missing) > 0 {
				b.w.Header().Set(HeaderMissing, missingText(missing))
			}
			b.w.Header().Set(HeaderParts, partsText(in.parts()))
		}()
	}
	if b.headOnly() {
		b.start()
		b.w.WriteHeader(http.StatusOK)
		return
	}
	if !b.started && b.coding == coding.Identity && !b.trailing {
		b.w.Header().Set("Content-Length", strconv.Itoa(len(b.buf)))
	}
	b.drain()
	if b.enc != nil {
		b.must(b.enc.Close()) // tells the client that the answer is complete
	}
}

// fail ends the answer with err. Before the first byte that is a JSON error. Later, fail breaks the
// body off, without the end of the compression and of HTTP, so that no client can consider it
// complete; then fail does not return.
func (b *body) fail(err error) {
	if !b.started {
		httpapi.WriteError(b.w, b.r, err, b.logger)
		return
	}
	if gone := b.r.Context().Err() != nil && errors.Is(err, context.Canceled); !gone {
		b.logger.Error("answer broken off", "path", b.r.URL.Path, "query", b.r.URL.RawQuery, "error", err)
	}
	b.abort()
}

// abort ends the handler and breaks the connection.
func (b *body) abort() {
	if !b.r.ProtoAtLeast(1, 1) {
		b.reset()
	}
	panic(http.ErrAbortHandler)
}

// reset breaks a connection of HTTP/1.0. There the end of the connection is the proper end of a
// body, and only a TCP reset shows that it broke.
func (b *body) reset() {
	conn, _, err := b.conn.Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// start sets the header.
func (b *body) start() {
	b.started = true
	h := b.w.Header()
	h.Set("Content-Type", b.mime)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Add("Vary", "Accept-Encoding")
	if b.coding != coding.Identity {
		h.Set("Content-Encoding", b.coding)
	}
}

// drain writes the collected text.
func (b *body) drain() {
	if !b.started {
		b.start()
		if b.coding != coding.Identity {
			b.enc = coding.Get(b.coding, b.w)
			b.share.Take(coding.EncoderBytes)
		}
	}
	b.must(b.conn.SetWriteDeadline(time.Now().Add(b.stall)))
	b.share.Take(cap(b.buf))
	defer b.share.Give(cap(b.buf))
	var err error
	if b.enc != nil {
		_, err = b.enc.Write(b.buf)
	} else {
		_, err = b.w.Write(b.buf)
	}
	b.must(err)
	b.buf = b.buf[:0]
}

// must aborts unless err is nil, or says that the ResponseWriter, such as a recorder or a wrapper,
// does not support the call.
func (b *body) must(err error) {
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		b.abort()
	}
}
