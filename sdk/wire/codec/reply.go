package codec

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Reply is one decoded frame of a sidecar. Op decides which fields count.
type Reply struct {
	Op      string
	Corr    string
	HasCorr bool

	Receipt wire.Receipt      // OK of a single publish
	Results []wire.ResultItem // OK of a batch
	Err     *wire.Error       // ERR
	// Positions is of the OK to a SUBSCRIBE without a group: the seqs right behind which it starts,
	// by partition.
	Positions map[int]uint64

	Topic      string
	Group      string
	Deliveries []wire.Delivery // EVENT has one, EVENTS several
	Partitions []int           // ASSIGNED and REVOKED
}

// DecodeReply decodes one text frame of a sidecar. Ops and members that it does not know are no
// error: a newer sidecar may send them. The reply keeps nothing of text.
func DecodeReply(text []byte) (*Reply, error) {
	if r := decodeFast(text); r != nil {
		return r, nil
	}
	return decodeAnyReply(text)
}

// decodeAnyReply is DecodeReply without the fast path.
func decodeAnyReply(text []byte) (*Reply, error) {
	var m answer
	if err := m.read(text); err != nil {
		return nil, fmt.Errorf("a sidecar's frame: %w", err)
	}
	var r Reply
	var in memberReader
	if r.Op = opOf(&m.op, replyOps); r.Op == "" {
		r.Op = in.text("op", &m.op)
	}
	r.Corr = in.text("corr", &m.corr)
	r.Topic = in.text("topic", &m.topic)
	r.Group = in.text("group", &m.group)
	r.HasCorr = m.corr.given()
	switch {
	case in.err != nil:
	case r.Op == "":
		in.err = wire.Errorf(wire.BadRequest, "op is missing")
	case r.Op == wire.OpOK:
		r.Receipt, r.Results = m.receipt(&in), m.results
		if m.positions.given() {
			r.Positions, in.err = ParsePositions(m.positions.raw)
		}
	case r.Op == wire.OpErr:
		r.Err = m.error(&in)
	case r.Op == wire.OpEvent:
		var d wire.Delivery
		d, in.err = m.delivery.decode()
		r.Deliveries = []wire.Delivery{d}
	case r.Op == wire.OpEvents:
		r.Deliveries = m.deliveries
	case r.Op == wire.OpAssigned || r.Op == wire.OpRevoked:
		if m.partitions.kind == '[' && json.Unmarshal(m.partitions.raw, &r.Partitions) != nil {
			in.fail("partitions must be an array of whole numbers")
		}
	}
	in.check(m.bad)
	if in.err != nil {
		return nil, fmt.Errorf("a sidecar's frame: %w", in.err)
	}
	return &r, nil
}

var replyOps = []string{wire.OpOK, wire.OpErr, wire.OpEvent, wire.OpEvents}

// ParseReceipt reads HTTP's body of a single publish.
func ParseReceipt(body []byte) (wire.Receipt, error) {
	var m answer
	if err := m.read(body); err != nil {
		return wire.Receipt{}, fmt.Errorf("a publish's answer: %w", err)
	}
	var in memberReader
	r := m.receipt(&in)
	if in.err != nil {
		return wire.Receipt{}, fmt.Errorf("a publish's answer: %w", in.err)
	}
	return r, nil
}

// ParseResults reads HTTP's body of a batch.
func ParseResults(body []byte) ([]wire.ResultItem, error) {
	var m answer
	if err := m.readWhole("a batch's answer", body); err != nil {
		return nil, err
	}
	return m.results, nil
}

// readWhole reads a body, named what in errors, and refuses it if any element is wrong.
func (m *answer) readWhole(what string, body []byte) error {
	err := m.read(body)
	if err == nil && m.bad != nil {
		err = m.bad
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ParseErrorBody makes an Error of an HTTP answer's status and body. A body that is not Sluice's,
// such as a proxy's page, gets the code that goes with the status.
func ParseErrorBody(status int, body []byte) *wire.Error {
	var m answer
	if m.read(body) == nil && m.code.given() {
		var in memberReader
		if e := m.error(&in); in.err == nil {
			return e
		}
	}
	return wire.Errorf(wire.CodeOfStatus(status), "the server answered with status %d", status)
}

// answer holds the members of a sidecar's frame, or of an HTTP body.
type answer struct {
	op, corr, topic, group value

	id, ts, partition, seq, duplicate, durability                value
	deliverAt                                                    value
	code, msg, retryAfterMS, scope, reason, fields, missing, ids value
	pointer, partitions, positions                               value

	delivery   deliveryMembers
	deliveries []wire.Delivery
	results    []wire.ResultItem
	bad        *wire.Error // the first thing wrong in deliveries or results
}

func (m *answer) read(text []byte) error {
	s := scanner{b: text}
	isObject, err := s.object(func(name []byte) *SyntaxError { return m.member(&s, name) })
	if err != nil {
		return err
	}
	if !isObject {
		return wire.Errorf(wire.BadRequest, "not a JSON object")
	}
	return nil
}

func (m *answer) member(s *scanner, name []byte) *SyntaxError {
	if slot := m.slot(name); slot != nil {
		return s.into(slot)
	}
	switch array := s.peek() == '['; {
	case string(name) == "event" || string(name) == "ctx":
		return m.delivery.member(s, name)
	case array && string(name) == "events":
		return s.elements(func() *SyntaxError { return m.scanDelivery(s) })
	case array && string(name) == "results":
		return s.elements(func() *SyntaxError { return m.scanResult(s) })
	}
	return s.skip()
}

func (m *answer) slot(name []byte) *value {
	switch string(name) {
	case "op":
		return &m.op
	case "corr":
		return &m.corr
	case "topic":
		return &m.topic
	case "group":
		return &m.group
	case "id":
		return &m.id
	case "ts":
		return &m.ts
	case "deliver_at":
		return &m.deliverAt
	case "partition":
		return &m.partition
	case "seq":
		return &m.seq
	case "duplicate":
		return &m.duplicate
	case "durability":
		return &m.durability
	case "code":
		return &m.code
	case "msg", "error":
		return &m.msg
	case "retry_after_ms":
		return &m.retryAfterMS
	case "scope":
		return &m.scope
	case "reason":
		return &m.reason
	case "fields":
		return &m.fields
	case "missing":
		return &m.missing
	case "ids":
		return &m.ids
	case "pointer":
		return &m.pointer
	case "partitions":
		return &m.partitions
	case "positions":
		return &m.positions
	}
	return nil
}

func (m *answer) scanDelivery(s *scanner) *SyntaxError {
	var d deliveryMembers
	if s.peek() != '{' {
		return s.skip()
	}
	err := s.members(func(name []byte) *SyntaxError { return d.member(s, name) })
	if err != nil || m.bad != nil {
		return err
	}
	var one wire.Delivery
	one, m.bad = d.decode()
	m.deliveries = append(m.deliveries, one)
	return nil
}

func (m *answer) scanResult(s *scanner) *SyntaxError {
	var one answer
	if s.peek() != '{' {
		return s.skip()
	}
	if err := s.members(func(name []byte) *SyntaxError { return one.member(s, name) }); err != nil {
		return err
	}
	var in memberReader
	var r wire.ResultItem
	if one.code.given() {
		r.Err = one.error(&in)
	} else {
		r.Receipt = one.receipt(&in)
	}
	if m.bad == nil {
		m.bad = in.err
	}
	m.results = append(m.results, r)
	return nil
}

func (m *answer) receipt(in *memberReader) (r wire.Receipt) {
	r.ID = in.text("id", &m.id)
	r.TS = in.whole("ts", &m.ts)
	r.Partition = int(in.whole("partition", &m.partition))
	r.Seq = uint64(in.whole("seq", &m.seq))
	r.DeliverAt = in.whole("deliver_at", &m.deliverAt)
	r.Duplicate = in.flag("duplicate", &m.duplicate)
	r.Spooled = m.durability.kind == '"' && string(m.durability.name()) == "spool"
	return r
}

func (m *answer) error(in *memberReader) *wire.Error {
	e := new(wire.Error)
	e.Code = wire.Code(in.text("code", &m.code))
	e.Msg = in.text("msg", &m.msg)
	e.Scope = in.text("scope", &m.scope)
	e.Reason = in.text("reason", &m.reason)
	e.Pointer = in.text("pointer", &m.pointer)
	wait := in.whole("retry_after_ms", &m.retryAfterMS)
	e.RetryAfter = time.Duration(min(wait, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	e.Seq = uint64(in.whole("seq", &m.seq))
	e.Missing = in.texts("missing", &m.missing, math.MaxInt, anyString)
	e.IDs = in.texts("ids", &m.ids, math.MaxInt, anyString)
	if m.fields.kind == '[' && json.Unmarshal(m.fields.raw, &e.Fields) != nil {
		in.fail("fields must be an array of objects with field and message")
	}
	return e
}

// deliveryMembers holds where event and ctx are.
type deliveryMembers struct {
	event                         eventMembers
	attempt, ackDeadlineMS, lease value
}

func (d *deliveryMembers) member(s *scanner, name []byte) *SyntaxError {
	switch string(name) {
	case "event":
		d.event = eventMembers{}
		return d.event.scan(s)
	case "ctx":
		if s.peek() != '{' {
			return s.skip()
		}
		return s.members(func(name []byte) *SyntaxError {
			switch string(name) {
			case "attempt":
				return s.into(&d.attempt)
			case "ack_deadline_ms":
				return s.into(&d.ackDeadlineMS)
			case "lease":
				return s.into(&d.lease)
			}
			return s.skip()
		})
	}
	return s.skip()
}

func (d *deliveryMembers) decode() (wire.Delivery, *wire.Error) {
	e, err := d.event.decode()
	if err != nil {
		return wire.Delivery{}, err
	}
	var in memberReader
	one := wire.Delivery{
		Event:         e,
		Attempt:       int(in.whole("attempt", &d.attempt)),
		AckDeadlineMS: in.whole("ack_deadline_ms", &d.ackDeadlineMS),
	}
	one.Lease = in.text("lease", &d.lease)
	return one, in.err
}
