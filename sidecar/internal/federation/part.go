package federation

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

// partConfig describes a part and its bounds.
type partConfig struct {
	name    string // for people
	cursor  string // for cursors
	store   string // the id of the store that it is from, or for; "": not known
	sources []*sidecar
	ask     ask
	rank    int // of equal events the one of the lowest rank counts
	share   int64
	maxLine int
	opening chan struct{} // a place for each part that may be opened at once
	log     *slog.Logger
	slow    [2]time.Duration // when to log that it is slow: first, and each time after
}

// part is one part of the fleet in one stream. A goroutine reads ahead, from one sidecar after
// another if several are on the same store. The merge takes what it has read.
type part struct {
	partConfig

	// Only the reading goroutine uses these.
	lines    splitter
	begun    chan struct{} // closed at the first answer, or when there is none
	hasBegun bool
	empty    bool // the part is empty for any query; known once begun
	came     int  // events since the last request to a sidecar

	// Both goroutines use these.
	ready    chan *chunk  // closed at the end
	err      error        // the reason, if not nil; read after ready is closed
	buffered atomic.Int64 // bytes of chunks being filled or read
	room     pause.Wake   // says that buffered has decreased

	// Only the merging goroutine uses these.
	chunk *chunk
	at    int // the head's index in chunk
	ts    int64
	id    string
	taken int64
}

// newPart gets a part ready for run.
func newPart(c partConfig) *part {
	return &part{
		partConfig: c,
		lines:      splitter{desc: c.ask.scan.Descending, maxLine: c.maxLine, last: c.ask.scan.After},
		begun:      make(chan struct{}),
		ready:      make(chan *chunk, c.share/chunkBytes+1),
		room:       pause.NewWake(),
	}
}

// after is where the part began.
func (p *part) after() *eventlog.Point { return p.ask.scan.After }

// run reads to the part's end, or until it cannot continue.
func (p *part) run(ctx context.Context) {
	p.err = p.read(ctx)
	p.begin()
	close(p.ready)
}

func (p *part) begin() {
	if !p.hasBegun {
		p.hasBegun = true
		close(p.begun)
	}
}

// read asks one sidecar after another, until each has failed since the last event. It asks a spool
// only once, since events that have left the spool are no longer in it. It cannot resume after
// events in the wrong order: after the later of two events, the earlier one is never sent.
func (p *part) read(ctx context.Context) error {
	for i, failed := 0, 0; ; i++ {
		source := p.sources[i%len(p.sources)]
		err := p.attempt(ctx, source)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if failed++; p.came > 0 {
			failed = 0
		}
		passedOver := p.came > 0 && errors.Is(err, errDisorder)
		if p.ask.part == replay.PartSpool || passedOver || failed >= len(p.sources) {
			return &sourceError{source: source, err: err}
		}
		p.log.Warn("a part of the fleet is asked again, at the next sidecar that has it", "part", p.name, "sidecar", source.name(),
			"next", p.sources[(i+1)%len(p.sources)].name(), "error", err)
	}
}

// sourceError names the sidecar that failed last.
type sourceError struct {
	source *sidecar
	err    error
}

func (e *sourceError) Error() string { return e.source.name() + ": " + e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// attempt reads from one sidecar, after the events that others have sent.
func (p *part) attempt(ctx context.Context, s *sidecar) error {
	for {
		a := p.ask
		a.store, a.node = p.store, s.said.NodeID
		if p.lines.last != nil {
			last := *p.lines.last
			a.scan.After = &last
		}
		if err := p.attemptOnce(ctx, s, a); err != nil {
			return err
		}
		if a.limit == 0 || s.self || p.came < a.limit {
			return nil
		}
		// The requested events have arrived, and the stream may not need more. attempt requests
		// more once they are needed.
		if err := p.awaitBuffered(ctx, 1); err != nil {
			return err
		}
	}
}

func (p *part) attemptOnce(ctx context.Context, s *sidecar, a ask) error {
	p.came = 0
	p.lines.restart()
	p.lines.asked = &a
	if s.self {
		p.lines.asked = nil
	}
	text, empty, err := p.open(ctx, s, a)
	if err != nil {
		return err
	}
	defer text.Close()
	if !p.hasBegun {
		p.empty = empty
	}
	p.begin()
	for {
		if err := p.awaitBuffered(ctx, p.share); err != nil {
			return err
		}
		c := newChunk()
		err := p.lines.fill(c, text, p.hungry)
		if len(c.lines) > 0 {
			p.came += len(c.lines)
			p.buffered.Add(c.size())
			p.ready <- c // ready has room for each chunk that share allows
		} else {
			c.release()
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// open asks for the part; a semaphore bounds the requests at once.
func (p *part) open(ctx context.Context, s *sidecar, a ask) (text io.ReadCloser, empty bool, err error) {
	select {
	case p.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	defer func() { <-p.opening }()
	return s.open(ctx, a)
}

// hungry reports whether the merge has nothing more to take.
func (p *part) hungry() bool { return len(p.ready) == 0 }

// awaitBuffered waits until buffered is less than that. Here a reader waits for a slow client: unread bytes
// fill the peer's connection, and stop the peer.
func (p *part) awaitBuffered(ctx context.Context, less int64) error {
	for p.buffered.Load() >= less {
		select {
		case <-p.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// next moves the head to the next event; false is the part's end. The old head is lost, except for
// its id.
func (p *part) next() (bool, error) {
	if p.chunk != nil {
		if p.at++; p.at < len(p.chunk.lines) {
			p.head(p.chunk.lines[p.at-1].idEnd)
			return true, nil
		}
		p.releaseChunk()
	}
	c, open := p.receive()
	if !open {
		return false, p.err
	}
	p.chunk, p.at = c, 0
	p.head(0)
	return true, nil
}

// head reads the (ts, id) of the line at p.at, whose id begins at from.
func (p *part) head(from int) {
	l := &p.chunk.lines[p.at]
	p.ts, p.id = l.ts, p.chunk.ids[from:l.idEnd]
}

// text is the head's, valid until next.
func (p *part) text() []byte {
	l := &p.chunk.lines[p.at]
	return p.chunk.text[l.start:l.end]
}

// releaseChunk gives the chunk back and wakes the reader.
func (p *part) releaseChunk() {
	p.buffered.Add(-p.chunk.size())
	p.chunk.release()
	p.chunk = nil
	p.room.Set()
}

// receive waits for the next chunk, and logs a long wait. The reader ends with its context, so
// receive does not wait for ever.
func (p *part) receive() (c *chunk, open bool) {
	select {
	case c, open = <-p.ready:
		return c, open
	default:
	}
	began := time.Now()
	timer := time.NewTimer(p.slow[0])
	defer timer.Stop()
	for {
		select {
		case c, open = <-p.ready:
			return c, open
		case <-timer.C:
			p.log.Warn("an answer of the fleet waits for one part", "part", p.name, "waited", time.Since(began).Round(time.Millisecond))
			timer.Reset(p.slow[1])
		}
	}
}

// waits reports whether next would have to wait.
func (p *part) waits() bool {
	return (p.chunk == nil || p.at+1 >= len(p.chunk.lines)) && len(p.ready) == 0
}

// discard releases the remaining chunks; the reader has ended.
func (p *part) discard() {
	if p.chunk != nil {
		p.releaseChunk()
	}
	for c := range p.ready {
		c.release()
	}
}

var errStalled = errors.New("it sent nothing for too long")
