package forward

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// releasing is the body of an answer, which has a place until it is closed.
type releasing struct {
	io.ReadCloser
	release func()
}

func (b *releasing) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// dial makes a connection to the sidecar whose key is the host of addr.
func (f *Forwarder) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	key, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	return f.tunnels.Dial(ctx, key)
}

// patient writes an answer, and gives up a reader who does not read.
type patient struct {
	http.ResponseWriter
	conn *http.ResponseController
}

func newPatient(w http.ResponseWriter) *patient { return &patient{w, http.NewResponseController(w)} }

func (p *patient) Write(b []byte) (int, error) {
	_ = p.conn.SetWriteDeadline(time.Now().Add(stallTimeout))
	return p.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController. A stream may be silent after it.
func (p *patient) FlushError() error {
	_ = p.conn.SetWriteDeadline(time.Now().Add(stallTimeout))
	err := p.conn.Flush()
	p.leave()
	return err
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// leave leaves the connection to what comes next.
func (p *patient) leave() { _ = p.conn.SetWriteDeadline(time.Time{}) }

// buffers are those that answers are copied through.
var buffers bufferPool

type bufferPool struct{ sync.Pool }

const bufferBytes = 32 << 10

func (p *bufferPool) Get() []byte {
	if b, ok := p.Pool.Get().(*[bufferBytes]byte); ok {
		return b[:]
	}
	return make([]byte, bufferBytes)
}

func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[bufferBytes]byte)(b)) }
