package wire

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
)

// SameContent reports whether a and b are the same event published twice, as
// the code conflict defines it: same key, same headers (order and the trace
// headers traceparent, tracestate and baggage aside) and same payload. Bytes
// are compared as bytes. JSON is compared as JSON: numbers as decimals of any
// size, strings after unescaping, objects whatever the order of their members.
// Of members with the same name the order does count.
func SameContent(a, b *Event) bool {
	if a.Key != b.Key || a.Binary != b.Binary {
		return false
	}
	if !slices.Equal(a.Headers, b.Headers) &&
		!slices.Equal(contentHeaders(a.Headers), contentHeaders(b.Headers)) {
		return false
	}
	if bytes.Equal(a.Payload, b.Payload) {
		return true
	}
	return !a.Binary && bytes.Equal(appendCanonicalJSON(nil, a.Payload), appendCanonicalJSON(nil, b.Payload))
}

// ContentHash is the SHA-256 of a canonical form of exactly what SameContent
// compares, so two events have the same hash when, and only when (collisions
// of SHA-256 aside), SameContent holds. Stores may keep it: the canonical form
// is part of their format and must not change.
func ContentHash(e *Event) [32]byte {
	buf := make([]byte, 0, 64+len(e.Key)+e.Headers.Size()+3*len(e.Headers)+len(e.Payload)+len(e.Payload)/4)
	buf = appendCanonicalText(buf, []byte(e.Key))
	headers := contentHeaders(e.Headers)
	buf = binary.AppendUvarint(buf, uint64(len(headers)))
	for _, h := range headers {
		buf = appendCanonicalText(buf, []byte(h.Name))
		buf = appendCanonicalText(buf, []byte(h.Value))
	}
	if e.Binary {
		buf = append(append(buf, 'b'), e.Payload...)
	} else {
		buf = appendCanonicalJSON(append(buf, 'j'), e.Payload)
	}
	return sha256.Sum256(buf)
}

// contentHeaders returns the headers without those of tracing, by name.
func contentHeaders(h Headers) Headers {
	if len(h) == 0 {
		return nil
	}
	kept := make(Headers, 0, len(h))
	for _, x := range h {
		switch x.Name {
		case "traceparent", "tracestate", "baggage":
		default:
			kept = append(kept, x)
		}
	}
	slices.SortFunc(kept, func(a, b Header) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value))
	})
	return kept
}

// appendCanonicalJSON appends a form of the JSON text that is the same for
// equal values and differs for different ones. It takes time and memory in
// proportion to the text, apart from sorting names. What is not JSON, which no
// checked payload is, stands for itself.
//
// The form: n, t, f for the literals; d, the decimal and a zero byte for a
// number; s, length and bytes for a string; [ values ] for an array; { names
// and values } for an object, by name.
func appendCanonicalJSON(dst, text []byte) []byte {
	t := trees.Get().(*tree)
	defer t.giveBack()
	if s := (scanner{b: text}); checkUTF8(text) != nil || t.parse(&s, nil) != nil || s.end() != nil {
		return append(append(dst, 'x'), text...)
	}
	return t.appendValue(dst, 0)
}

func appendCanonicalText(dst, text []byte) []byte {
	dst = append(dst, 's')
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

// tree holds a JSON value's nodes in the order of the text, so that a node's
// first child follows it at once. A tree, instead of sorting while scanning,
// keeps deep nesting from copying its inside once per level.
type tree struct {
	nodes []node
	order []int32 // scratch: the sorted members of the objects being written
}

var trees = sync.Pool{New: func() any { return new(tree) }}

// giveBack lets the tree's memory be used again, unless a large payload made
// it large.
func (t *tree) giveBack() {
	const most = 256
	if cap(t.nodes) > most || cap(t.order) > most {
		return
	}
	clear(t.nodes) // they refer to the payload
	t.nodes, t.order = t.nodes[:0], t.order[:0]
	trees.Put(t)
}

type node struct {
	raw  []byte // a scalar's text
	name []byte // the unescaped name, in an object
	next int32  // index of the node that follows this one and all within it
	kind byte
	esc  bool
}

func (t *tree) parse(s *scanner, name []byte) *SyntaxError {
	s.space()
	at := len(t.nodes)
	t.nodes = append(t.nodes, node{kind: s.peek(), name: name})
	var err *SyntaxError
	switch s.peek() {
	case '{':
		err = s.members(func(name value) *SyntaxError { return t.parse(s, name.name()) })
	case '[':
		err = s.elements(func() *SyntaxError { return t.parse(s, nil) })
	default:
		var v value
		v, err = s.value()
		n := &t.nodes[at]
		n.raw, n.kind, n.esc = v.raw, v.kind, v.escaped
	}
	t.nodes[at].next = int32(len(t.nodes))
	return err
}

func (t *tree) appendValue(dst []byte, at int32) []byte {
	n := &t.nodes[at]
	switch n.kind {
	case '0':
		dst = parseDecimal(n.raw).appendTo(append(dst, 'd'))
		return append(dst, 0)
	case '"':
		text := n.raw[1 : len(n.raw)-1]
		if n.esc {
			text, _ = unescape(nil, text)
		}
		return appendCanonicalText(dst, text)
	case '[':
		dst = append(dst, '[')
		for child := at + 1; child < n.next; child = t.nodes[child].next {
			dst = t.appendValue(dst, child)
		}
		return append(dst, ']')
	case '{':
		return append(t.appendMembers(append(dst, '{'), at), '}')
	}
	return append(dst, n.kind)
}

func (t *tree) appendMembers(dst []byte, at int32) []byte {
	base := len(t.order)
	for child := at + 1; child < t.nodes[at].next; child = t.nodes[child].next {
		t.order = append(t.order, child)
	}
	end := len(t.order)
	byName := func(a, b int32) int { return bytes.Compare(t.nodes[a].name, t.nodes[b].name) }
	if !slices.IsSortedFunc(t.order[base:end], byName) {
		slices.SortStableFunc(t.order[base:end], byName)
	}
	for i := base; i < end; i++ {
		child := t.order[i]
		dst = appendCanonicalText(dst, t.nodes[child].name)
		dst = t.appendValue(dst, child)
	}
	t.order = t.order[:base]
	return dst
}
