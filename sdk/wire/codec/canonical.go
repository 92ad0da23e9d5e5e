package codec

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// SameContent reports whether a and b are the same event published twice, as the code conflict
// defines it: same key, same headers and same payload. The order of headers does not count. The
// trace headers traceparent, tracestate and baggage do not count either, nor the headers that
// Sluice sets itself, which begin with sluice-. Bytes are compared as bytes. JSON is compared as
// JSON: numbers as decimals of any size, strings after unescaping, objects without regard to the
// order of their members. The order of members with the same name does count.
func SameContent(a, b *wire.Event) bool {
	if a.Key != b.Key || a.Binary != b.Binary {
		return false
	}
	headers, payload := slices.Equal(a.Headers, b.Headers), bytes.Equal(a.Payload, b.Payload)
	if headers && payload {
		return true
	}
	if !payload && a.Binary {
		return false
	}
	c := canons.Get().(*canon)
	defer c.giveBack()
	return (headers || c.sameHeaders(a.Headers, b.Headers)) && (payload || c.sameJSON(a.Payload, b.Payload))
}

// ownHeader begins the names of the headers that Sluice sets.
const ownHeader = "sluice-"

// ContentHash is the SHA-256 of a canonical form of exactly what SameContent compares, so two
// events have the same hash when, and only when (collisions of SHA-256 aside), SameContent holds.
// Stores may keep it: the canonical form is part of their format and must not change.
func ContentHash(e *wire.Event) [32]byte {
	c := canons.Get().(*canon)
	defer c.giveBack()
	return c.hash(e)
}

// canon makes the canonical form. Its fields are scratch memory, kept for the next hash.
type canon struct {
	buf  []byte // the form itself
	tree tree
}

var canons = sync.Pool{New: func() any { return new(canon) }}

// giveBack lets the memory be used again, unless a large event made it large.
func (c *canon) giveBack() {
	const (
		mostBytes = 64 << 10
		mostNodes = 1 << 10
	)
	t := &c.tree
	if max(cap(c.buf), cap(t.plain)) > mostBytes || max(cap(t.nodes), cap(t.order)) > mostNodes {
		return
	}
	t.s = scanner{} // it refers to the payload
	canons.Put(c)
}

func (c *canon) hash(e *wire.Event) [32]byte {
	buf := slices.Grow(c.buf[:0], 64+len(e.Key)+e.Headers.Size()+3*len(e.Headers)+len(e.Payload)+len(e.Payload)/4)
	buf = appendCanonicalText(buf, e.Key)
	buf = c.appendHeaders(buf, e.Headers)
	if e.Binary {
		buf = append(append(buf, 'b'), e.Payload...)
	} else {
		buf = c.appendJSON(append(buf, 'j'), e.Payload)
	}
	c.buf = buf
	return sha256.Sum256(buf)
}

func (c *canon) sameHeaders(a, b wire.Headers) bool {
	c.buf = c.appendHeaders(c.buf[:0], a)
	n := len(c.buf)
	c.buf = c.appendHeaders(c.buf, b)
	return bytes.Equal(c.buf[:n], c.buf[n:])
}

func (c *canon) sameJSON(a, b []byte) bool {
	c.buf = c.appendJSON(c.buf[:0], a)
	n := len(c.buf)
	c.buf = c.appendJSON(c.buf, b)
	return bytes.Equal(c.buf[:n], c.buf[n:])
}

// appendHeaders appends how many headers there are without those of tracing and of Sluice, and
// these by name.
func (c *canon) appendHeaders(dst []byte, h wire.Headers) []byte {
	order := c.tree.order[:0]
	for i := range h {
		switch name := h[i].Name; {
		case isTraceHeader(name), strings.HasPrefix(name, ownHeader):
		default:
			order = append(order, int32(i))
		}
	}
	c.tree.order = order[:0]
	if len(order) > 1 {
		slices.SortFunc(order, func(i, j int32) int {
			a, b := &h[i], &h[j]
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value))
		})
	}
	dst = binary.AppendUvarint(dst, uint64(len(order)))
	for _, i := range order {
		dst = appendCanonicalText(dst, h[i].Name)
		dst = appendCanonicalText(dst, h[i].Value)
	}
	return dst
}

// appendJSON appends a form of the JSON text that is the same for equal values and differs for
// different ones. It takes time and memory in proportion to the text, apart from sorting names.
// Text that is not JSON, which no checked payload is, counts byte for byte.
//
// The form: n, t, f for the literals; d, the decimal and a zero byte for a number; s, length and
// bytes for a string; [ values ] for an array; { names and values } for an object, by name.
func (c *canon) appendJSON(dst, text []byte) []byte {
	if checkUTF8(text) != nil || c.tree.parse(text) != nil {
		return append(append(dst, 'x'), text...)
	}
	return c.tree.appendValue(dst, 0)
}

func appendCanonicalText[T string | []byte](dst []byte, text T) []byte {
	if n := len(text); n < 0x80 { // most are, and their length is one byte
		dst = append(dst, 's', byte(n))
	} else {
		dst = binary.AppendUvarint(append(dst, 's'), uint64(n))
	}
	return append(dst, text...)
}

// tree holds a JSON value's nodes in the order of the text, so that a node's first child follows it
// at once. A tree, instead of sorting while scanning, keeps deep nesting from copying its inside
// once per level.
type tree struct {
	s     scanner
	nodes []node
	plain []byte  // the names that had escapes, without them
	order []int32 // the sorted members of the objects being written
}

// node is a value. It refers to the text by positions: pointers would have to be cleared, and cost
// more to write while garbage is collected.
type node struct {
	start, end int        // of a number, or of what is between a string's quotes
	name       memberName // in an object
	// next is the index of the node that follows this one and all within it. Until that is known,
	// it is the index of the node that this one is in.
	next    int32
	kind    byte
	escaped bool
}

// memberName is where a member's name is: in the text, or in the tree's plain.
type memberName struct {
	start, end int
	head       uint64 // the first eight bytes, which tell most names apart
	plain      bool
}

// outside is the index of the node that the outermost one is in.
const outside = -1

func (t *tree) parse(text []byte) (err *SyntaxError) {
	t.s, t.nodes, t.plain = scanner{b: text}, t.nodes[:0], t.plain[:0]
	s := &t.s
	s.space()
	in := int32(outside)
	for {
		at := int32(len(t.nodes))
		t.nodes = slices.Grow(t.nodes, 1)[:at+1]
		n := &t.nodes[at] // of an earlier text: fields not set below are not read
		if in != outside && t.nodes[in].kind == '{' {
			if err = t.scanName(&n.name); err != nil {
				return err
			}
		}
		opens := false
		n.kind, n.start, n.next = s.peek(), s.i, at+1
		switch n.kind {
		case '{', '[':
			s.i++
			in, n.next, opens = at, in, true
		case '"':
			n.escaped, err = s.str()
			n.start, n.end = n.start+1, s.i-1
		default:
			n.kind, err = s.scalar()
			n.end = s.i
		}
		if err != nil {
			return err
		}
		if in, err = t.toNext(in, opens); err != nil {
			return err
		}
		if in == outside {
			return s.end()
		}
	}
}

// toNext goes to the next value or member, and closes the nodes that end before it. in is the
// innermost open node, before and after; it opens here, or else the scanner is behind a value.
func (t *tree) toNext(in int32, opens bool) (int32, *SyntaxError) {
	s := &t.s
	for in != outside {
		s.space()
		n, c := &t.nodes[in], s.peek()
		switch {
		case c == closing(n.kind):
			s.i++
			in, n.next, opens = n.next, int32(len(t.nodes)), false
		case opens:
			return in, nil
		case c == ',':
			s.i++
			s.space()
			return in, nil
		default:
			return in, s.fail("expected , or " + string(closing(n.kind)) + " after a value")
		}
	}
	return in, nil
}

// scanName scans a member's name and its colon, up to the member's value.
func (t *tree) scanName(n *memberName) (err *SyntaxError) {
	n.start = t.s.i + 1
	if n.plain, n.end, err = t.s.nameUpTo(); err != nil {
		return err
	}
	n.end--
	from := t.s.b
	if n.plain {
		inner := from[n.start:n.end]
		n.start = len(t.plain)
		t.plain, _ = unescape(t.plain, inner)
		n.end = len(t.plain)
		from = t.plain
	}
	n.head = head(from, n.start, n.end)
	return nil
}

// head is the first eight bytes of b[start:end] as a number that orders as they do, with zeros
// behind where there are fewer.
func head(b []byte, start, end int) (h uint64) {
	n := end - start
	if len(b)-start >= 8 {
		h = binary.BigEndian.Uint64(b[start:])
		if n < 8 {
			h &^= 1<<(64-8*n) - 1
		}
		return h
	}
	for i, c := range b[start:end] {
		h |= uint64(c) << (56 - 8*i)
	}
	return h
}

func (t *tree) bytes(n *memberName) []byte {
	if n.plain {
		return t.plain[n.start:n.end]
	}
	return t.s.b[n.start:n.end]
}

func (t *tree) appendValue(dst []byte, at int32) []byte {
	n := &t.nodes[at]
	switch n.kind {
	case '0':
		dst = AppendDecimal(append(dst, 'd'), t.s.b[n.start:n.end])
		return append(dst, 0)
	case '"':
		text := t.s.b[n.start:n.end]
		if !n.escaped {
			return appendCanonicalText(dst, text)
		}
		names := len(t.plain)
		t.plain, _ = unescape(t.plain, text)
		dst = appendCanonicalText(dst, t.plain[names:])
		t.plain = t.plain[:names]
		return dst
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
	t.sort(t.order[base:end])
	for i := base; i < end; i++ {
		child := t.order[i]
		dst = appendCanonicalText(dst, t.bytes(&t.nodes[child].name))
		dst = t.appendValue(dst, child)
	}
	t.order = t.order[:base]
	return dst
}

// sort puts members in the order of their names, and those of one name in the order of the text.
func (t *tree) sort(members []int32) {
	const few = 16
	if len(members) > few {
		slices.SortFunc(members, func(i, j int32) int {
			a, b := &t.nodes[i].name, &t.nodes[j].name
			if a.head != b.head {
				return cmp.Compare(a.head, b.head)
			}
			return cmp.Or(t.beyondHead(a, b), cmp.Compare(i, j))
		})
		return
	}
	for i := 1; i < len(members); i++ {
		m := members[i]
		j := i
		for ; j > 0 && t.before(&t.nodes[m].name, &t.nodes[members[j-1]].name); j-- {
			members[j] = members[j-1]
		}
		members[j] = m
	}
}

func (t *tree) before(a, b *memberName) bool {
	return a.head < b.head || a.head == b.head && t.beyondHead(a, b) < 0
}

// beyondHead compares names with the same head.
func (t *tree) beyondHead(a, b *memberName) int { return bytes.Compare(t.bytes(a), t.bytes(b)) }
