package codec

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// AppendEventJSON appends the event as the contract's section 2 shows it. It allocates nothing but
// dst, and trusts the event: Payload must be the compact JSON (or, with Binary, the bytes) that the
// checks of this package let pass.
func AppendEventJSON(dst []byte, e *wire.Event) []byte {
	w := memberWriter{dst: AppendString(append(dst, `{"id":`...), e.ID)}
	w.dst = strconv.AppendInt(append(w.dst, `,"ts":`...), e.TS, 10)
	w.dst = AppendString(append(w.dst, `,"topic":`...), e.Topic)
	if e.Seq > 0 {
		w.dst = strconv.AppendInt(append(w.dst, `,"partition":`...), int64(e.Partition), 10)
		w.dst = strconv.AppendUint(append(w.dst, `,"seq":`...), e.Seq, 10)
	}
	w.optional(e)
	w.dst = appendPayload(append(w.dst, ','), e)
	w.flag("spooled", e.Spooled)
	return append(w.dst, '}')
}

// optional appends the optional members that the publisher chose.
func (w *memberWriter) optional(e *wire.Event) {
	w.text("key", e.Key)
	if len(e.Headers) > 0 {
		w.dst = appendHeaders(w.name("headers"), e.Headers)
	}
	w.texts("tags", e.Tags)
	w.texts("caused_by", e.CausedBy)
	w.text("sid", e.SID)
	if e.TTLMS > 0 {
		w.dst = strconv.AppendInt(w.name("ttl_ms"), e.TTLMS, 10)
	}
}

func appendPayload(dst []byte, e *wire.Event) []byte {
	switch {
	case e.Binary:
		dst = base64.StdEncoding.AppendEncode(append(dst, `"payload_base64":"`...), e.Payload)
		return append(dst, '"')
	case len(e.Payload) == 0:
		return append(dst, `"payload":null`...)
	}
	return append(append(dst, `"payload":`...), e.Payload...)
}

func appendHeaders(dst []byte, h wire.Headers) []byte {
	dst = append(dst, '{')
	for i := range h {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, h[i].Name), ':')
		dst = AppendString(dst, h[i].Value)
	}
	return append(dst, '}')
}

func appendStrings(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, s)
	}
	return append(dst, ']')
}

// ParseEvent reads an event as AppendEventJSON writes it, white space and unknown members aside. It
// is for readers that trust their sidecar: it checks types, not limits. The event keeps nothing of
// b.
func ParseEvent(b []byte) (wire.Event, error) {
	var m eventMembers
	s := scanner{b: b}
	isObject, err := s.object(func(name []byte) *SyntaxError { return m.member(&s, name) })
	if err != nil {
		return wire.Event{}, fmt.Errorf("an event is not JSON: %w", err)
	}
	m.isObject = isObject
	e, bad := m.decode()
	if bad != nil {
		return wire.Event{}, bad
	}
	return e, nil
}

type eventMembers struct {
	isObject                          bool
	id, ts, topic, partition, seq     value
	key, headers, tags, causedBy, sid value
	ttlMS                             value
	payload, payload64, spooled       value
}

// scan finds the members of the event that starts at the next byte.
func (m *eventMembers) scan(s *scanner) *SyntaxError {
	if m.isObject = s.peek() == '{'; !m.isObject {
		return s.skip()
	}
	return s.members(func(name []byte) *SyntaxError { return m.member(s, name) })
}

func (m *eventMembers) member(s *scanner, name []byte) *SyntaxError {
	slot := m.slot(name)
	if slot == nil {
		return s.skip()
	}
	if slot.kind != 0 { // readers differ in which of the two counts
		return s.fail("a member of the event occurs twice")
	}
	return s.into(slot)
}

func (m *eventMembers) slot(name []byte) *value {
	switch string(name) {
	case "id":
		return &m.id
	case "ts":
		return &m.ts
	case "topic":
		return &m.topic
	case "partition":
		return &m.partition
	case "seq":
		return &m.seq
	case "key":
		return &m.key
	case "headers":
		return &m.headers
	case "tags":
		return &m.tags
	case "caused_by":
		return &m.causedBy
	case "sid":
		return &m.sid
	case "ttl_ms":
		return &m.ttlMS
	case "payload":
		return &m.payload
	case "payload_base64":
		return &m.payload64
	case "spooled":
		return &m.spooled
	}
	return nil
}

// unlimited lets a client read all that its sidecar was configured to accept.
var unlimited = wire.Limits{
	PayloadBytes: math.MaxInt, HeaderCount: math.MaxInt, HeaderBytes: math.MaxInt, KeyBytes: math.MaxInt,
	BatchEvents: math.MaxInt, BatchBytes: math.MaxInt, FrameBytes: math.MaxInt, JSONDepth: math.MaxInt,
}

func anyString(string, string) *wire.Error { return nil }

func (m *eventMembers) decode() (wire.Event, *wire.Error) {
	var e wire.Event
	if !m.isObject {
		return e, wire.Errorf(wire.BadRequest, "an event must be a JSON object")
	}
	var r memberReader
	r.growFor(&m.id, &m.topic, &m.key, &m.sid, &m.headers)
	e.ID = r.text("id", &m.id)
	e.Topic = r.text("topic", &m.topic)
	e.Key = r.text("key", &m.key)
	e.SID = r.text("sid", &m.sid)
	e.TS = r.whole("ts", &m.ts)
	e.TTLMS = r.whole("ttl_ms", &m.ttlMS)
	e.Partition = int(r.whole("partition", &m.partition))
	e.Seq = uint64(r.whole("seq", &m.seq))
	e.Spooled = r.flag("spooled", &m.spooled)
	e.Headers = r.checkedHeaders("headers", &m.headers, unlimited)
	e.Tags = r.texts("tags", &m.tags, math.MaxInt, anyString)
	e.CausedBy = r.texts("caused_by", &m.causedBy, math.MaxInt, anyString)
	if r.err == nil {
		e.Payload, e.Binary, r.err = decodePayload(&m.payload, &m.payload64, unlimited)
	}
	return e, r.err
}

// whole reads a number of any size.
func (r *memberReader) whole(name string, v *value) int64 { return r.number(name, v, 0, math.MaxInt64) }
