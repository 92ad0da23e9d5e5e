package federation

import (
	"strings"
)

// merge brings the parts' events into one order: (ts, id), ascending or descending. Of equal events
// the one of the lower-ranked part comes first. It is a heap of the parts by their heads, and also
// knows the second part: while one part has a run of events, merge compares it only with the
// second.
type merge struct {
	desc   bool
	heap   []*part
	second int // index in heap; 0: not known
}

// before reports whether x's head comes before y's.
func (m *merge) before(x, y *part) bool {
	if x.ts != y.ts {
		return x.ts < y.ts != m.desc
	}
	if c := strings.Compare(x.id, y.id); c != 0 {
		return c < 0 != m.desc
	}
	return x.rank < y.rank
}

// add adds a part that has a head.
func (m *merge) add(p *part) {
	m.heap = append(m.heap, p)
	for at := len(m.heap) - 1; at > 0; {
		up := (at - 1) / 2
		if !m.before(m.heap[at], m.heap[up]) {
			break
		}
		m.heap[at], m.heap[up] = m.heap[up], m.heap[at]
		at = up
	}
	m.second = 0
}

// top is the part whose head comes first; nil when all have ended.
func (m *merge) top() *part {
	if len(m.heap) == 0 {
		return nil
	}
	return m.heap[0]
}

// next moves the top part to its next event. Its error is the top part's, and the heap must not be
// used after it.
func (m *merge) next() error {
	more, err := m.heap[0].next()
	if err != nil {
		return err
	}
	if !more {
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap = m.heap[:last]
		m.sink()
		return nil
	}
	if m.second == 0 {
		m.second = m.lesser(1)
	}
	if m.second != 0 && m.before(m.heap[m.second], m.heap[0]) {
		m.sink()
	}
	return nil
}

// sink moves the top part down to its place.
func (m *merge) sink() {
	m.second = 0
	for at := 0; ; {
		down := m.lesser(2*at + 1)
		if down == 0 || !m.before(m.heap[down], m.heap[at]) {
			return
		}
		m.heap[at], m.heap[down] = m.heap[down], m.heap[at]
		at = down
	}
}

// lesser is the index of the part at i or of its sibling, whichever comes first; 0: there is none.
func (m *merge) lesser(i int) int {
	switch {
	case i >= len(m.heap):
		return 0
	case i+1 < len(m.heap) && m.before(m.heap[i+1], m.heap[i]):
		return i + 1
	}
	return i
}
