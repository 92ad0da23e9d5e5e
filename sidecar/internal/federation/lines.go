package federation

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

const (
	// chunkBytes is how much text is handed over at once, except for longer lines.
	chunkBytes = 32 << 10
	// minRead is the least room for a Read.
	minRead = 2 << 10
)

// chunk is a piece of a part's text, cut into lines. Its lines are valid until it is released; its
// ids are strings of their own.
type chunk struct {
	text  []byte
	lines []line
	ids   string // of all lines, one after the other
}

// line says where a line and its id are in their chunk. The id begins where that of the line before
// ended.
type line struct {
	ts         int64
	start, end int // without the line feed
	idEnd      int
}

var chunks = sync.Pool{New: func() any { return &chunk{text: make([]byte, 0, chunkBytes)} }}

func newChunk() *chunk { return chunks.Get().(*chunk) }

// release gives the chunk back for reuse. A chunk that has grown is left to the garbage collector.
func (c *chunk) release() {
	if cap(c.text) > chunkBytes {
		return
	}
	c.text, c.lines, c.ids = c.text[:0], c.lines[:0], ""
	chunks.Put(c)
}

// size is the memory that the chunk uses of its part's share of the buffers.
func (c *chunk) size() int64 { return int64(cap(c.text)) }

// splitter splits a part's text into chunks of lines, and checks that their events are in order. It
// outlives the sources that it reads: after a failure the next source continues behind last.
type splitter struct {
	desc    bool
	maxLine int
	asked   *ask            // the query to a peer, to check its lines; nil: own text
	last    *eventlog.Point // the point that the next line has to follow; nil: any

	rest  []byte // the beginning of a line for which the last chunk had no room
	ids   []byte // of the chunk that is being filled
	place eventlog.Point
}

// errTruncated is the end of a text within a line, errDisorder an event that should have come
// before the last one, errForeign a line outside the request.
var (
	errForeign   = errors.New("it sent something else than the events that it was asked for")
	errTruncated = errors.New("the answer ends in the middle of a line")
	errDisorder  = errors.New("comes out of order")
)

// fill reads from src into c, until c is full or has a line while hungry says that a reader waits
// for it. The lines before an error are complete; io.EOF is the proper end.
func (t *splitter) fill(c *chunk, src io.Reader, hungry func() bool) error {
	c.text = append(c.text[:0], t.rest...)
	t.rest = t.rest[:0]
	t.ids = t.ids[:0]
	begun, searched := 0, 0 // the beginning of the line under way, which has no end before here
	var err error
	for err == nil {
		if room := cap(c.text) - len(c.text); room < minRead {
			if len(c.lines) > 0 {
				break
			}
			if begun > 0 { // the text had only signs of life, which need no room
				c.text = c.text[:copy(c.text, c.text[begun:])]
				begun, searched = 0, searched-begun
				continue
			}
			if len(c.text) > t.maxLine {
				err = fmt.Errorf("%w: a line is longer than %d bytes", errForeign, t.maxLine)
				break
			}
			c.text = append(make([]byte, 0, 2*cap(c.text)), c.text...)
		}
		var n int
		n, err = src.Read(c.text[len(c.text):cap(c.text)])
		c.text = c.text[:len(c.text)+n]
		for {
			at := bytes.IndexByte(c.text[searched:], '\n')
			if at < 0 {
				searched = len(c.text)
				break
			}
			end := searched + at
			if bad := t.split(c, begun, end); bad != nil {
				err = bad
				break
			}
			begun, searched = end+1, end+1
		}
		if err == nil && len(c.lines) > 0 && hungry() {
			break
		}
	}
	if err == io.EOF && begun < len(c.text) {
		err = errTruncated
	}
	t.rest = append(t.rest[:0], c.text[begun:]...)
	c.ids = string(t.ids)
	t.keepLast(c)
	return err
}

// restart drops the incomplete line of a source that failed.
func (t *splitter) restart() { t.rest = t.rest[:0] }

// split adds the line of c.text between start and end. An empty line is a sign of life and no
// event.
func (t *splitter) split(c *chunk, start, end int) error {
	if start == end || end == start+1 && c.text[start] == '\r' {
		return nil
	}
	begun := len(t.ids)
	ts, ids, err := t.appendPlace(t.ids, c.text[start:end])
	if err != nil {
		return err
	}
	if !t.inOrder(c, begun, ts, ids[begun:]) {
		return fmt.Errorf("the event %q at ts %d %w", ids[begun:], ts, errDisorder)
	}
	t.ids = ids
	c.lines = append(c.lines, line{ts: ts, start: start, end: end, idEnd: len(ids)})
	return nil
}

// inOrder reports whether (ts, id) follows the line before, whose id ends at begun in t.ids.
func (t *splitter) inOrder(c *chunk, begun int, ts int64, id []byte) bool {
	var lastTS int64
	order := 0
	if n := len(c.lines); n > 0 {
		if lastTS = c.lines[n-1].ts; ts == lastTS {
			from := 0
			if n > 1 {
				from = c.lines[n-2].idEnd
			}
			order = bytes.Compare(id, t.ids[from:begun])
		}
	} else if t.last == nil {
		return true
	} else if lastTS = t.last.TS; ts == lastTS {
		order = strings.Compare(string(id), t.last.ID)
	}
	if ts != lastTS {
		return ts > lastTS != t.desc
	}
	return order != 0 && order > 0 != t.desc
}

// keepLast records the point of the chunk's last line.
func (t *splitter) keepLast(c *chunk) {
	n := len(c.lines)
	if n == 0 {
		return
	}
	from := 0
	if n > 1 {
		from = c.lines[n-2].idEnd
	}
	t.place = eventlog.Point{TS: c.lines[n-1].ts, ID: c.ids[from:]}
	t.last = &t.place
}

// appendPlace reads the (ts, id) of an event. A peer's event is parsed completely, and must be
// within the request, since it is passed on unchanged.
func (t *splitter) appendPlace(dst, text []byte) (ts int64, _ []byte, err error) {
	if t.asked == nil {
		return appendPlace(dst, text)
	}
	e, err := codec.ParseEvent(text)
	q := &t.asked.scan
	switch {
	case err != nil:
	case e.ID == "" || e.Topic != t.asked.topic:
		err = fmt.Errorf("it is event %q of topic %q", e.ID, e.Topic)
	case q.Key != nil && e.Key != *q.Key:
		err = fmt.Errorf("event %q has the key %q", e.ID, e.Key)
	case e.TS < q.MinTS || e.TS > q.Upper():
		err = fmt.Errorf("event %q is of ts %d", e.ID, e.TS)
	}
	if err != nil {
		return 0, dst, fmt.Errorf("%w: %w", errForeign, err)
	}
	return e.TS, append(dst, e.ID...), nil
}

// lineStart begins every event that a sidecar writes.
const lineStart = `{"id":"`

// appendPlace reads an event's ts, and appends its id to dst. It reads lines of a sidecar no
// further than that.
func appendPlace(dst, text []byte) (ts int64, _ []byte, err error) {
	if n := len(text); n > len(lineStart) && string(text[:len(lineStart)]) == lineStart && text[n-1] == '}' {
		rest := text[len(lineStart):]
		if end := bytes.IndexByte(rest, '"'); end > 0 && bytes.IndexByte(rest[:end], '\\') < 0 {
			if ts, ok := leadingTS(rest[end:]); ok {
				return ts, append(dst, rest[:end]...), nil
			}
		}
	}
	e, err := codec.ParseEvent(text)
	if err != nil {
		return 0, dst, fmt.Errorf("a line is no event: %w", err)
	}
	if e.ID == "" {
		return 0, dst, errors.New("a line is no event: it has no id")
	}
	return e.TS, append(dst, e.ID...), nil
}

// leadingTS reads `","ts":N` up to the following comma.
func leadingTS(text []byte) (int64, bool) {
	const lead = `","ts":`
	if len(text) < len(lead) || string(text[:len(lead)]) != lead {
		return 0, false
	}
	ts := int64(0)
	for i, c := range text[len(lead):] {
		switch {
		case c >= '0' && c <= '9' && i < maxTSDigits:
			ts = ts*10 + int64(c-'0')
		case c == ',' && i > 0:
			return ts, i == 1 || text[len(lead)] != '0'
		default:
			return 0, false
		}
	}
	return 0, false
}

// maxTSDigits is the number of digits of wire.MaxTS.
const maxTSDigits = 16
