package gateway

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/budget"
)

// sendBuffer is the network connection under a WebSocket. Written bytes wait in memory for a
// goroutine, the flusher, that hands them to the socket, many frames with one system call. It runs
// only while there is something to write. So writing never blocks. The WebSocket library writes its
// pongs and close frames the same way, and never holds one of its locks for longer than a copy
// takes.
//
// Write does not enforce the bound: a subscription asks hasRoom before it writes, and Read waits
// while the bound is exceeded.
type sendBuffer struct {
	net.Conn // the socket; the flusher alone writes to it
	bound    int
	budget   *budget.Budget
	patience time.Duration // how long the peer may accept nothing
	receive  time.Duration // how long a message of the peer may take to arrive
	wake     func()        // called without mu once there is room again

	mu       sync.Mutex
	changed  sync.Cond // there is room, the send buffer is closed, or the flusher has ended
	chunks   [][]byte  // to be written
	queued   int       // bytes in chunks and with the flusher
	accepted uint64    // bytes, ever
	written  uint64    // bytes, ever
	receipts []receipt // by at
	corks    int       // writers that still hold a cork
	flushing bool
	refused  bool // there is no room until half of the bound is free
	closed   bool
	aborted  bool // closed, and nothing is written any more
	stalled  bool // the peer accepted nothing for too long
	timed    bool // the message being read has its deadline

	receiving atomic.Bool // a message is being read
}

// receipt is a function to call once the first `at` bytes are on the socket.
type receipt struct {
	at   uint64
	done func()
}

// closeLinger is how long a closed send buffer continues to write its content.
const closeLinger = 5 * time.Second

func newSendBuffer(socket net.Conn, b Bounds, memory *budget.Budget) *sendBuffer {
	o := &sendBuffer{Conn: socket, bound: b.SendBufferBytes, budget: memory, patience: b.SlowClientTimeout, receive: b.ReceiveTimeout, wake: func() {}}
	o.changed.L = &o.mu
	return o
}

// Write accepts all of p, or nothing once the send buffer is closed.
func (o *sendBuffer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, net.ErrClosed
	}
	o.queued += len(p)
	o.budget.Take(len(p))
	o.accepted += uint64(len(p))
	for rest := p; len(rest) > 0; {
		last := len(o.chunks) - 1
		if last < 0 || len(o.chunks[last]) == cap(o.chunks[last]) {
			o.chunks = append(o.chunks, newChunk(len(o.chunks), len(rest)))
			last++
		}
		c := o.chunks[last]
		n := min(len(rest), cap(c)-len(c))
		o.chunks[last] = append(c, rest[:n]...)
		rest = rest[n:]
	}
	o.flush()
	return len(p), nil
}

// Read waits while the send buffer is over its bound: the gateway does not read from a client that
// does not read its replies. Reads within a message have the message's deadline; a message that
// arrives at once needs none.
func (o *sendBuffer) Read(p []byte) (int, error) {
	o.mu.Lock()
	for o.queued > o.bound && !o.closed {
		o.changed.Wait()
	}
	if o.receiving.Load() && !o.timed && !o.closed {
		o.timed = true
		_ = o.Conn.SetReadDeadline(time.Now().Add(o.receive))
	}
	o.mu.Unlock()
	return o.Conn.Read(p)
}

// beginMessage says that the reader has received the beginning of a message.
func (o *sendBuffer) beginMessage() { o.receiving.Store(true) }

// endMessage says that the reader has received the end of a message. Its error is that of a
// connection that has ended.
func (o *sendBuffer) endMessage() error {
	o.receiving.Store(false)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.timed || o.closed {
		return nil
	}
	o.timed = false
	return o.Conn.SetReadDeadline(time.Time{})
}

// hasRoom reports whether the send buffer is below its bound; that is 0 while the budget of all
// connections is used up. After a false there is no room until half of the bound is free, and then
// wake is called. So deliveries come in bursts, and not whenever the client reads a few bytes.
func (o *sendBuffer) hasRoom() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queued >= o.bound || o.queued > 0 && o.budget.Full() {
		o.refused = true
	}
	return !o.refused && !o.closed
}

// cork holds writes back until uncork is called as often, so that they leave together. The caller
// must not block in between.
func (o *sendBuffer) cork() {
	o.mu.Lock()
	o.corks++
	o.mu.Unlock()
}

func (o *sendBuffer) uncork() {
	o.mu.Lock()
	o.corks--
	o.flush()
	o.mu.Unlock()
}

// whenWritten calls done from the flusher once everything accepted so far is on the socket. If the
// connection ends before that, done is never called.
func (o *sendBuffer) whenWritten(done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.receipts = append(o.receipts, receipt{o.accepted, done})
		o.flush()
	}
}

// flush starts the flusher if there is something to do. It requires mu.
func (o *sendBuffer) flush() {
	if !o.flushing && !o.aborted && o.corks == 0 && (len(o.chunks) > 0 || len(o.receipts) > 0) {
		o.flushing = true
		go o.run() // wait waits for it
	}
}

// run is the flusher: it writes until the send buffer is empty.
func (o *sendBuffer) run() {
	var chunks [][]byte
	for {
		chunks = o.next(chunks[:0])
		if chunks == nil {
			return
		}
		for _, c := range chunks {
			err := o.send(c)
			freeChunk(c)
			if err != nil {
				o.fail(err)
				return
			}
			o.sent(len(c))
		}
		clear(chunks)
	}
}

// next takes the bytes to write, and calls the receipts that are due; nil ends the flusher.
func (o *sendBuffer) next(spare [][]byte) [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.chunks) == 0 || o.corks > 0 {
		if due := o.due(); len(due) > 0 {
			o.mu.Unlock()
			for _, r := range due {
				r.done()
			}
			o.mu.Lock()
			continue
		}
		if len(o.chunks) == 0 {
			o.chunks = nil
			if o.closed {
				o.Conn.Close()
			}
		}
		o.flushing = false // the last uncork starts the flusher again
		o.changed.Broadcast()
		return nil
	}
	chunks := o.chunks
	o.chunks = spare
	return chunks
}

// due takes the receipts whose bytes are written. It requires mu.
func (o *sendBuffer) due() []receipt {
	n := 0
	for n < len(o.receipts) && o.receipts[n].at <= o.written {
		n++
	}
	due := o.receipts[:n:n]
	if o.receipts = o.receipts[n:]; len(o.receipts) == 0 {
		o.receipts = nil
	}
	return due
}

// send writes to the socket as long as the peer accepts data.
func (o *sendBuffer) send(p []byte) error {
	for {
		o.mu.Lock()
		lingering := o.closed // Close has set the deadline
		if !lingering {
			_ = o.Conn.SetWriteDeadline(time.Now().Add(o.patience))
		}
		o.mu.Unlock()
		n, err := o.Conn.Write(p)
		if p = p[n:]; err == nil || n == 0 || lingering || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// sent accounts for bytes that are on the socket.
func (o *sendBuffer) sent(n int) {
	o.mu.Lock()
	if !o.aborted {
		o.queued -= n
		o.budget.Give(n)
	}
	o.written += uint64(n)
	due := o.due()
	wake := o.refused && o.queued <= o.bound/2
	if wake {
		o.refused = false
	}
	if o.queued <= o.bound {
		o.changed.Broadcast()
	}
	o.mu.Unlock()
	for _, r := range due {
		r.done()
	}
	if wake {
		o.wake()
	}
}

// fail ends the connection after a write failed.
func (o *sendBuffer) fail(err error) {
	o.mu.Lock()
	o.stalled = !o.closed && errors.Is(err, os.ErrDeadlineExceeded)
	o.flushing = false
	o.mu.Unlock()
	o.abort()
}

// abort closes the socket at once and drops all data that waits to be written.
func (o *sendBuffer) abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.aborted = true, true
	o.budget.Give(o.queued)
	o.chunks, o.receipts, o.queued = nil, nil, 0
	o.changed.Broadcast()
	o.Conn.Close()
}

// Close ends reading at once. It ends the connection when all accepted data is written, or after
// closeLinger.
func (o *sendBuffer) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return net.ErrClosed
	}
	o.closed = true
	o.changed.Broadcast()
	if !o.flushing && len(o.chunks) == 0 {
		return o.Conn.Close()
	}
	now := time.Now()
	_ = o.Conn.SetReadDeadline(now)
	return o.Conn.SetWriteDeadline(now.Add(closeLinger))
}

// wait returns once nothing is written any more; call it after Close or abort.
func (o *sendBuffer) wait() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.flushing || len(o.chunks) > 0 {
		o.changed.Wait()
	}
}

// isStalled reports whether the connection ended because its peer accepted nothing for too long.
func (o *sendBuffer) isStalled() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stalled
}
