// Package sendbuffer holds what is to be written to one client: bounded, within the memory of the
// client, and for as long as the client reads.
package sendbuffer

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
)

// Sink is the client's end: a socket, or the answer of a request.
type Sink interface {
	Write(p []byte) (int, error)
	SetWriteDeadline(t time.Time) error
	// Close ends the connection. It is called once everything is written or a write has failed, and
	// may be called again.
	Close() error
}

// Config is what a Buffer needs; Memory may be nil.
type Config struct {
	Bytes   int // how much may wait for the client to read it
	Memory  *budget.Share
	Silence time.Duration // how long the client may accept nothing
	Wake    func()        // called once there is room again
}

// Buffer holds bytes for a goroutine, the flusher, that hands them to the sink, many writes with
// one call. The flusher runs only while there is something to write. So writing never blocks. Write
// does not enforce the bound: who has more to write asks HasRoom or AwaitRoom first.
type Buffer struct {
	to  Sink
	cfg Config

	mu       sync.Mutex
	changed  sync.Cond // there is room, the buffer is closed, or the flusher has ended
	chunks   [][]byte  // to be written
	queued   int       // bytes in chunks and with the flusher
	charged  int       // of Memory: the chunks of these bytes
	accepted uint64    // bytes, ever
	taken    uint64    // bytes that the flusher has taken, ever
	written  uint64    // bytes, ever
	receipts []receipt // by end
	corks    int       // writers that still hold a cork
	flushing bool
	refused  bool // there is no room until half of the bound is free
	closed   bool
	stalled  bool // the client accepted nothing for too long
}

// receipt has the functions to call once the first `end` bytes are written, or once the last of
// them were dropped.
type receipt struct {
	end              uint64
	written, dropped func()
}

// Linger is how long a closed buffer continues to write its content.
const Linger = 5 * time.Second

// New makes a buffer.
func New(to Sink, cfg Config) *Buffer {
	b := &Buffer{to: to, cfg: cfg}
	b.changed.L = &b.mu
	return b
}

// Write accepts all of p, or nothing once the buffer is closed.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, net.ErrClosed
	}
	b.queued += len(p)
	b.accepted += uint64(len(p))
	for rest := p; len(rest) > 0; {
		last := len(b.chunks) - 1
		if last < 0 || len(b.chunks[last]) == cap(b.chunks[last]) {
			b.chunks = append(b.chunks, newChunk(len(b.chunks), len(rest)))
			last++
			b.charge(cap(b.chunks[last]))
		}
		c := b.chunks[last]
		n := min(len(rest), cap(c)-len(c))
		b.chunks[last] = append(c, rest[:n]...)
		rest = rest[n:]
	}
	b.flush()
	return len(p), nil
}

// charge takes n bytes of memory. It requires mu.
func (b *Buffer) charge(n int) {
	b.charged += n
	b.cfg.Memory.Take(n)
}

// Charge has what waits, and what comes, counted in another share.
func (b *Buffer) Charge(memory *budget.Share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cfg.Memory.Give(b.charged)
	b.cfg.Memory = memory
	memory.Take(b.charged)
}

// HasRoom reports whether the buffer is below its bound; that is 0 while the client's memory is
// used up. After a false there is no room until half of the bound is free, and then
// Wake is called. So writes come in bursts, and not whenever the client reads a few bytes.
func (b *Buffer) HasRoom() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queued >= b.cfg.Bytes || b.queued > 0 && b.cfg.Memory.Full() {
		b.refused = true
	}
	return !b.refused && !b.closed
}

// AwaitRoom waits while the bound is exceeded and the buffer is not closed.
func (b *Buffer) AwaitRoom() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.queued > b.cfg.Bytes && !b.closed {
		b.changed.Wait()
	}
}

// Len is how many bytes wait to be written.
func (b *Buffer) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queued
}

// Cork holds writes back until Uncork is called as often, so that they leave together. The caller
// must not block in between.
func (b *Buffer) Cork() {
	b.mu.Lock()
	b.corks++
	b.mu.Unlock()
}

// Uncork ends a Cork.
func (b *Buffer) Uncork() {
	b.mu.Lock()
	b.corks--
	b.flush()
	b.mu.Unlock()
}

// Then calls written from the flusher once everything accepted so far is written. It calls dropped,
// if there is one, if the connection ends before the flusher has taken the last of it; dropped must
// not call the buffer. If the connection breaks after that, neither is called; nor if the buffer is
// closed, and ok is false.
func (b *Buffer) Then(written, dropped func()) (ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.receipts = append(b.receipts, receipt{b.accepted, written, dropped})
	b.flush()
	return true
}

// flush starts the flusher if there is something to do. It requires mu.
func (b *Buffer) flush() {
	if !b.flushing && b.corks == 0 && (len(b.chunks) > 0 || len(b.receipts) > 0) {
		b.flushing = true
		go b.run() // Wait waits for it
	}
}

// run is the flusher: it writes until the buffer is empty.
func (b *Buffer) run() {
	var chunks [][]byte
	for {
		chunks = b.next(chunks[:0])
		if chunks == nil {
			return
		}
		for i, c := range chunks {
			err := b.send(c)
			chunks[i] = nil // the memory is another's
			freeChunk(c)
			if err != nil {
				b.fail()
				return
			}
			b.sent(c)
		}
	}
}

// next takes the bytes to write, and calls the receipts whose bytes are written; nil ends the
// flusher.
func (b *Buffer) next(spare [][]byte) [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.chunks) == 0 || b.corks > 0 {
		if ready := b.writtenReceipts(); len(ready) > 0 {
			b.mu.Unlock()
			for _, r := range ready {
				r.written()
			}
			b.mu.Lock()
			continue
		}
		if len(b.chunks) == 0 {
			b.chunks = nil
			if b.closed {
				_ = b.to.Close() // nothing is left to do for a client that is gone
			}
		}
		b.flushing = false // the last Uncork starts the flusher again
		b.changed.Broadcast()
		return nil
	}
	chunks := b.chunks
	b.chunks, b.taken = spare, b.accepted
	return chunks
}

// writtenReceipts takes the receipts whose bytes are written. It requires mu.
func (b *Buffer) writtenReceipts() []receipt {
	n := 0
	for n < len(b.receipts) && b.receipts[n].end <= b.written {
		n++
	}
	ready := b.receipts[:n:n]
	if b.receipts = b.receipts[n:]; len(b.receipts) == 0 {
		b.receipts = nil
	}
	return ready
}

// send writes to the sink as long as the client accepts data.
func (b *Buffer) send(p []byte) error {
	for {
		deadline := time.Now().Add(b.cfg.Silence)
		b.mu.Lock()
		lingering := b.closed // it has another deadline
		if !lingering {
			_ = b.to.SetWriteDeadline(deadline)
		}
		b.mu.Unlock()
		n, err := b.to.Write(p)
		p = p[n:]
		late := errors.Is(err, os.ErrDeadlineExceeded)
		if late && n > 0 && !lingering {
			continue
		}
		if late && !lingering && !time.Now().Before(deadline) {
			b.mu.Lock()
			b.stalled = true
			b.mu.Unlock()
		}
		return err
	}
}

// sent accounts for a chunk that is written.
func (b *Buffer) sent(c []byte) {
	b.mu.Lock()
	b.queued -= len(c)
	b.charge(-cap(c))
	b.written += uint64(len(c))
	ready := b.writtenReceipts()
	wake := b.refused && b.queued <= b.cfg.Bytes/2
	if wake {
		b.refused = false
	}
	if b.queued <= b.cfg.Bytes {
		b.changed.Broadcast()
	}
	b.mu.Unlock()
	for _, r := range ready {
		r.written()
	}
	if wake {
		b.cfg.Wake()
	}
}

// fail ends the connection after a write failed.
func (b *Buffer) fail() {
	b.mu.Lock()
	b.dropUntaken()
	b.closed, b.flushing = true, false
	b.charge(-b.charged)
	b.queued, b.receipts = 0, nil
	b.changed.Broadcast()
	b.mu.Unlock()
	_ = b.to.Close()
}

// dropUntaken drops what the flusher has not taken, and calls its receipts, before Wait can return.
// It requires mu.
func (b *Buffer) dropUntaken() {
	for _, c := range b.chunks {
		b.queued -= len(c)
		b.charge(-cap(c))
		freeChunk(c)
	}
	b.chunks = nil
	kept := 0
	for kept < len(b.receipts) && b.receipts[kept].end <= b.taken {
		kept++
	}
	for _, r := range b.receipts[kept:] {
		if r.dropped != nil {
			r.dropped()
		}
	}
	b.receipts = b.receipts[:kept]
}

// Close writes all that was accepted, within Linger, and then closes the sink.
func (b *Buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return net.ErrClosed
	}
	b.closed = true
	b.changed.Broadcast()
	if !b.flushing && len(b.chunks) == 0 {
		return b.to.Close()
	}
	return b.to.SetWriteDeadline(time.Now().Add(Linger))
}

// Cut drops what the flusher has not taken yet, and lets it write the rest until the deadline. It
// may be called again, for another deadline.
func (b *Buffer) Cut(deadline time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.dropUntaken()
	_ = b.to.SetWriteDeadline(deadline)
	b.changed.Broadcast()
}

// Abort drops everything and closes the sink at once.
func (b *Buffer) Abort() {
	b.Cut(time.Now())
	_ = b.to.Close()
}

// Wait returns once nothing is written any more; call it after Close, Cut or Abort.
func (b *Buffer) Wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.flushing || len(b.chunks) > 0 {
		b.changed.Wait()
	}
}

// Stalled reports whether the connection ended because its client accepted nothing for too long.
func (b *Buffer) Stalled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stalled
}
