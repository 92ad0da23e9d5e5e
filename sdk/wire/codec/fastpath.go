package codec

import (
	"math"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// fastReader reads frames that are as this package appends them: members in that order, and without white space. It compares
// with the name that comes next, where the general way expects any name, and keeps no place for members that are not
// there. It refuses nothing: a frame that differs, right or wrong, is left to the general way.
type fastReader struct {
	scanner
	differs bool
	in      memberReader
}

// decodeFast decodes a frame of deliveries, or an OK without errors. It returns nil for any other, and where the frame
// differs.
func decodeFast(text []byte) *Reply {
	u := fastReader{scanner: scanner{b: text}}
	r := new(Reply)
	switch {
	case u.is(`{"op":"EVENT",`):
		r.Op, r.Deliveries = wire.OpEvent, make([]wire.Delivery, 1)
		u.names(r)
		u.delivery(&r.Deliveries[0], r.Topic)
	case u.is(`{"op":"EVENTS",`):
		r.Op = wire.OpEvents
		u.names(r)
		u.must(`"events":[`)
		u.deliveries(r)
	case u.is(`{"op":"OK"`):
		r.Op = wire.OpOK
		u.answer(r)
	default:
		return nil
	}
	u.must(`}`)
	if u.differs || u.in.err != nil || u.i < len(text) || !utf8.Valid(text) {
		return nil
	}
	return r
}

// is passes over a text, if that comes next.
func (u *fastReader) is(text string) bool {
	if len(u.b)-u.i < len(text) || string(u.b[u.i:u.i+len(text)]) != text {
		return false
	}
	u.i += len(text)
	return true
}

func (u *fastReader) must(text string) {
	if !u.is(text) {
		u.differs = true
	}
}

// next finds the value that comes next.
func (u *fastReader) next() value {
	v, err := u.value()
	if err != nil {
		u.differs = true
	}
	return v
}

// optional finds a member's value, if that member comes next.
func (u *fastReader) optional(name string) (v value) {
	if u.is(name) {
		v = u.next()
	}
	return v
}

// whole reads a number that has only digits.
func (u *fastReader) whole() (n int64) {
	start := u.i
	for ; u.i < len(u.b) && isDigit(u.b[u.i]); u.i++ {
		n = n*10 + int64(u.b[u.i]-'0')
	}
	if digits := u.i - start; digits == 0 || digits > 18 || digits > 1 && u.b[start] == '0' {
		u.differs = true
	}
	return n
}

// optionalWhole reads a member that is such a number, if it comes next.
func (u *fastReader) optionalWhole(name string) int64 {
	if u.is(name) {
		return u.whole()
	}
	return 0
}

func (u *fastReader) names(r *Reply) {
	u.must(`"topic":`)
	topic := u.next()
	group := u.optional(`,"group":`)
	u.must(`,`)
	u.in.growFor(&topic, &group)
	r.Topic, r.Group = u.in.text("topic", &topic), u.in.text("group", &group)
}

func (u *fastReader) deliveries(r *Reply) {
	for start := u.i; ; u.must(`,`) {
		r.Deliveries = append(r.Deliveries, wire.Delivery{})
		u.must(`{`)
		u.delivery(&r.Deliveries[len(r.Deliveries)-1], r.Topic)
		u.must(`}`)
		if u.differs || u.is(`]`) {
			return
		}
		if len(r.Deliveries) == 1 { // the others are about as long
			more := 1 + (len(u.b)-u.i)/(u.i-start)
			r.Deliveries = append(make([]wire.Delivery, 0, 1+more), r.Deliveries...)
		}
	}
}

func (u *fastReader) delivery(d *wire.Delivery, topic string) {
	u.must(`"event":{"id":`)
	u.event(&d.Event, topic)
	u.must(`},"ctx":{"attempt":`)
	d.Attempt = int(u.whole())
	u.must(`,"ack_deadline_ms":`)
	d.AckDeadlineMS = u.whole()
	u.must(`}`)
}

// event reads an event's members, from the value of its id on.
func (u *fastReader) event(e *wire.Event, topic string) {
	id := u.next()
	u.must(`,"ts":`)
	e.TS = u.whole()
	u.must(`,"topic":`)
	own := u.next()
	e.Partition = int(u.optionalWhole(`,"partition":`))
	e.Seq = uint64(u.optionalWhole(`,"seq":`))
	key := u.optional(`,"key":`)
	headers := u.optional(`,"headers":`)
	tags := u.optional(`,"tags":`)
	causedBy := u.optional(`,"caused_by":`)
	sid := u.optional(`,"sid":`)
	e.TTLMS = u.optionalWhole(`,"ttl_ms":`)
	payload := u.optional(`,"payload":`)
	payload64 := u.optional(`,"payload_base64":`)
	e.Spooled = u.is(`,"spooled":true`)
	if u.differs {
		return
	}
	in := &u.in
	if own.kind == '"' && string(own.name()) == topic { // one string for all events of the frame
		e.Topic, own = topic, value{}
	}
	in.arena.Reset()
	in.growFor(&id, &own, &key, &sid, &headers)
	e.ID = in.text("id", &id)
	if own.given() {
		e.Topic = in.text("topic", &own)
	}
	e.Key = in.text("key", &key)
	e.SID = in.text("sid", &sid)
	e.Headers = in.checkedHeaders("headers", &headers, unlimited)
	e.Tags = in.texts("tags", &tags, math.MaxInt, anyString)
	e.CausedBy = in.texts("caused_by", &causedBy, math.MaxInt, anyString)
	if in.err == nil {
		e.Payload, e.Binary, in.err = decodePayload(&payload, &payload64, unlimited)
	}
}

// answer reads what an OK says.
func (u *fastReader) answer(r *Reply) {
	corr := u.optional(`,"corr":`)
	r.Corr, r.HasCorr = u.in.text("corr", &corr), corr.given()
	if u.is(`,"id":`) {
		u.receipt(&r.Receipt)
		return
	}
	if !u.is(`,"results":[`) {
		return
	}
	for ; ; u.must(`,`) {
		r.Results = append(r.Results, wire.ResultItem{})
		u.must(`{"id":`)
		u.receipt(&r.Results[len(r.Results)-1].Receipt)
		u.must(`}`)
		if u.differs || u.is(`]`) {
			return
		}
	}
}

// receipt reads a receipt's members, from the value of its id on.
func (u *fastReader) receipt(r *wire.Receipt) {
	id := u.next()
	r.ID = u.in.text("id", &id)
	r.TS = u.optionalWhole(`,"ts":`)
	r.Partition = int(u.optionalWhole(`,"partition":`))
	r.Seq = uint64(u.optionalWhole(`,"seq":`))
	r.DeliverAt = u.optionalWhole(`,"deliver_at":`)
	r.Duplicate = u.is(`,"duplicate":true`)
	if r.Spooled = u.is(`,"durability":"spool"`); !r.Spooled {
		u.must(`,"durability":"store"`)
	}
}
