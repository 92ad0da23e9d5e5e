package codec

import (
	"bytes"
	"encoding/base64"
	"slices"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

// DecodeRequest decodes one text frame of a client. It checks shape and limits, so the caller need
// not. The request keeps nothing of frame. It is never nil: with an error it still carries Corr,
// where that could be read, for the answer.
//
// A member that the op does not know is refused, null counts as absent (except as a payload), and
// of members with the same name the last counts.
func DecodeRequest(text []byte, lim wire.Limits) (*Request, *wire.Error) {
	r := new(Request)
	var f frame
	s := scanner{b: text}
	isObject, err := s.object(func(name []byte) *SyntaxError { return f.member(&s, name, lim) }) // members before a syntax error stay
	var of, in memberReader
	corr := of.text("corr", &f.corr)
	if of.err == nil && f.corr.given() && utf8.ValidString(corr) {
		r.Corr, r.HasCorr = corr, true
	}
	r.readNames(&in, &f)
	switch {
	case err != nil:
		return r, wire.Errorf(wire.BadJSON, "the frame is not JSON: %v", err)
	case !isObject:
		return r, wire.Errorf(wire.BadRequest, "a frame must be a JSON object")
	case of.err != nil:
		return r, of.err
	}
	r.fill(&in, &f, lim)
	return r, in.err
}

// readNames reads which op the frame is, and of what: a refusal of the frame is noted and counted there.
func (r *Request) readNames(in *memberReader, f *frame) {
	switch r.Op = opOf(&f.op, requestOps); r.Op {
	case "", wire.OpPing, wire.OpAuth:
	default:
		r.Topic = in.text("topic", &f.topic)
		r.Group = in.text("group", &f.group)
	}
}

var requestOps = []string{
	wire.OpPublish, wire.OpAck, wire.OpNack, wire.OpModAck, wire.OpSubscribe, wire.OpUnsubscribe, wire.OpPause, wire.OpResume, wire.OpPing,
	wire.OpAuth,
}

// opOf returns one of the ops, so that no frame's is copied; "" where it is another.
func opOf(v *value, ops []string) string {
	if v.kind == '"' {
		name := v.name()
		for _, op := range ops {
			if string(name) == op {
				return op
			}
		}
	}
	return ""
}

// fill decodes the members that the frame's op needs.
func (r *Request) fill(in *memberReader, f *frame, lim wire.Limits) {
	switch r.Op {
	case wire.OpPublish:
		in.members(f, inPublish)
		r.fillPublish(in, f, lim)
	case wire.OpAck:
		in.members(f, inAck)
		r.fillSettle(in, f)
	case wire.OpNack:
		in.members(f, inNack)
		r.fillSettle(in, f)
		r.Nack = in.nack(&f.nack)
	case wire.OpModAck:
		in.members(f, inModAck)
		r.fillSettle(in, f)
		r.ExtendMS = in.extend(&f.extendMS)
	case wire.OpSubscribe:
		in.members(f, inSubscription|inOpts)
		r.checkSubscription(in)
		in.options(&r.Subscribe, &f.item, inSubscribeOpts, lim)
	case wire.OpUnsubscribe, wire.OpPause, wire.OpResume:
		in.members(f, inSubscription)
		r.checkSubscription(in)
	case wire.OpPing:
		in.members(f, 0)
	case wire.OpAuth:
		in.members(f, inToken)
		if r.Token = in.text("token", &f.token); len(r.Token) > wire.MaxTokenBytes {
			in.fail("token is %d bytes long; at most %d are allowed", len(r.Token), wire.MaxTokenBytes)
		}
	default:
		switch {
		case !f.op.given():
			in.fail("op is missing")
		case f.op.kind != '"':
			in.fail("op must be a string")
		default:
			name := f.op.name()
			in.check(wire.Errorf(wire.UnknownOp, "there is no op %s%s", shown(name), nearest.Known(string(name), requestOps)))
		}
	}
}

// checkSubscription checks the name of a subscription: a topic and maybe a group.
func (r *Request) checkSubscription(in *memberReader) {
	in.check(CheckReadTopic(r.Topic))
	if r.Group != "" {
		in.check(CheckGroup(r.Group))
	}
}

// fillSettle reads an ACK, NACK or MODACK.
func (r *Request) fillSettle(in *memberReader, f *frame) {
	r.checkSubscription(in)
	if r.Group == "" {
		in.fail("group is missing")
	}
	if bytes.IndexByte(f.ids.raw, ',') > 0 {
		in.arena.Grow(len(f.ids.raw)) // one allocation for all ids, which live until the answer
	}
	r.IDs = in.texts("ids", &f.ids, wire.MaxSettleIDs, checkID)
	if f.id.given() {
		r.IDs = append(r.IDs, in.id("id", &f.id))
	}
	if len(r.IDs) == 0 {
		in.fail("id is missing: give id, or ids with 1 to %d of them", wire.MaxSettleIDs)
	}
}

// members refuses a member of a frame that its op does not know.
func (r *memberReader) members(f *frame, allowed uint) {
	r.check(checkMembers(f.item.unknown, f.given(), allowed, frameMembers))
}

func (r *Request) fillPublish(in *memberReader, f *frame, lim wire.Limits) {
	switch {
	case in.err != nil:
	case f.events.given():
		in.err = r.fillBatch(f, lim)
	default:
		if in.err = CheckTopic(r.Topic); in.err != nil {
			return
		}
		r.Publish = f.item.decode(inItem, lim)
		r.Publish.Event.Topic = r.Topic
		in.err, r.Publish.Err = r.Publish.Err, nil
	}
}

func (r *Request) fillBatch(f *frame, lim wire.Limits) *wire.Error {
	if f.events.kind != '[' {
		return wire.Errorf(wire.BadRequest, "events must be an array of objects")
	}
	r.IsBatch, r.Events = true, f.batch // with their topics, also where the batch is refused
	for i := range r.Events {
		p := &r.Events[i]
		if p.Event.Topic != "" {
			continue
		}
		if p.Event.Topic = r.Topic; r.Topic == "" && p.Err == nil {
			*p = wire.PublishItem{Err: wire.Errorf(wire.BadRequest, "topic is missing, in the event as well as in the frame")}
		}
	}
	if f.item.payload.given() || f.item.payload64.given() {
		return wire.Errorf(wire.BadRequest, "give either payload or events, not both")
	}
	var bad *wire.Error
	if r.Trace, bad = f.item.batchTrace(lim); bad != nil {
		return bad
	}
	if f.batchEvents > lim.BatchEvents {
		return wire.Errorf(wire.PayloadTooLarge, "the batch holds %d events; at most %d are allowed (--limits batch)",
			f.batchEvents, lim.BatchEvents)
	}
	if size := len(f.events.raw); size > lim.BatchBytes {
		return wire.Errorf(wire.PayloadTooLarge, "the batch is %d bytes long; at most %d are allowed (--limits batch-bytes)",
			size, lim.BatchBytes)
	}
	if r.Topic != "" {
		return CheckTopic(r.Topic)
	}
	return nil
}

// batchTrace reads the opts of a batch: headers with the trace that its events belong to.
func (it *item) batchTrace(lim wire.Limits) (wire.Headers, *wire.Error) {
	if !it.optsValue.given() {
		return nil, nil
	}
	if it.optsValue.kind != '{' {
		return nil, wire.Errorf(wire.BadRequest, "opts must be an object")
	}
	var r memberReader
	headers := r.headers("headers", &it.opts.headers, lim)
	isOther := func(h wire.Header) bool { return !isTraceHeader(h.Name) }
	if r.err == nil && (it.opts.unknown != nil || it.opts.given() != inHeaders || slices.ContainsFunc(headers, isOther)) {
		r.fail("opts of a batch takes %s, %s and %s in headers, and nothing else: give each of events its own opts",
			headerParent, headerState, headerBaggage)
	}
	if r.err != nil {
		return nil, r.err
	}
	return PublisherHeaders(headers, lim)
}

// ParsePublishLine decodes one line of an NDJSON publish: an object with payload or payload_base64,
// and opts. Event.Topic is left empty: the request's path names the topic.
func ParsePublishLine(line []byte, lim wire.Limits) wire.PublishItem {
	var it item
	s := scanner{b: line}
	isObject, err := s.object(func(name []byte) *SyntaxError { return it.member(&s, name) })
	if err != nil {
		return wire.PublishItem{Err: wire.Errorf(wire.BadJSON, "the line is not JSON: %v", err)}
	}
	if !isObject {
		return wire.PublishItem{Err: wire.Errorf(wire.BadRequest, "a line must be a JSON object with payload, or payload_base64, and opts")}
	}
	p := it.decode(inLine, lim)
	if p.Err != nil {
		return wire.PublishItem{Err: p.Err}
	}
	return p
}

// decode makes the event, all but its topic. Members that are not in the set allowed are refused.
func (it *item) decode(allowed uint, lim wire.Limits) (p wire.PublishItem) {
	if p.Err = checkMembers(it.unknown, it.given(), allowed, frameMembers); p.Err != nil {
		return p
	}
	p.Event.Payload, p.Event.Binary, p.Err = decodePayload(&it.payload, &it.payload64, lim)
	if p.Err != nil || !it.optsValue.given() {
		return p
	}
	if it.optsValue.kind != '{' {
		p.Err = wire.Errorf(wire.BadRequest, "opts must be an object")
		return p
	}
	p.Err = it.opts.decode(&p, lim)
	return p
}

// decodePayload reads an event's payload, of which one of both forms is given.
func decodePayload(plain, base64 *value, lim wire.Limits) (payload []byte, binary bool, err *wire.Error) {
	switch {
	case plain.given() && base64.given():
		return nil, false, wire.Errorf(wire.BadRequest, "give either payload or payload_base64, not both")
	case base64.given():
		payload, err = base64Field("payload_base64", base64, lim)
		return payload, true, err
	case plain.kind == 0:
		return nil, false, wire.Errorf(wire.BadRequest, "payload is missing: give payload (any JSON value) or payload_base64")
	}
	payload, err = plain.payload(lim)
	return payload, false, err
}

func base64Field(name string, v *value, lim wire.Limits) ([]byte, *wire.Error) {
	if v.kind != '"' {
		return nil, wire.Errorf(wire.BadRequest, "%s must be a string", name)
	}
	text := v.name()
	payload := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(payload, text)
	if err != nil {
		return nil, wire.Errorf(wire.BadRequest, "%s is not standard base64 with padding: %v", name, err)
	}
	return payload[:n:n], CheckPayloadBytes(payload[:n], lim)
}

// growFor gives the arena room for the strings of an event's members: one allocation instead of one
// per string. Strings that could waste memory, which the event would keep for as long as it lives,
// get no room.
func (r *memberReader) growFor(members ...*value) {
	const most = 512
	size := 0
	for _, v := range members {
		if v.given() && !v.spaced && !v.escaped {
			size += len(v.raw)
		}
	}
	if size <= most {
		r.arena.Grow(size)
	}
}

// decode reads the opts of a PUBLISH into p.
func (o *options) decode(p *wire.PublishItem, lim wire.Limits) *wire.Error {
	e := &p.Event
	r := memberReader{err: checkMembers(o.unknown, o.given(), inPublishOpts, optsMembers)}
	r.growFor(&o.id, &o.key, &o.sid, &o.headers)
	e.ID = r.id("id", &o.id)
	p.HasTS = o.ts.given()
	e.TS = r.number("ts", &o.ts, 0, wire.MaxTS)
	p.Later.DeliverAt = r.optionalNumber("deliver_at", &o.deliverAt, 0, wire.MaxTS)
	p.Later.DelayMS = r.optionalNumber("delay_ms", &o.delayMS, 0, wire.MaxLaterMS)
	e.Key = r.text("key", &o.key)
	r.check(CheckKey(e.Key, lim))
	headers, bad := PublisherHeaders(r.headers("headers", &o.headers, lim), lim)
	e.Headers = headers
	r.check(bad)
	e.Tags = r.texts("tags", &o.tags, wire.MaxTags, checkTag)
	e.CausedBy = r.texts("caused_by", &o.causedBy, wire.MaxTags, checkID)
	if e.SID = r.text("sid", &o.sid); len(e.SID) > wire.MaxSIDBytes {
		r.fail("sid is %d bytes long; at most %d are allowed", len(e.SID), wire.MaxSIDBytes)
	}
	e.TTLMS = r.number("ttl_ms", &o.ttlMS, 1, wire.MaxTTLMS)
	return r.err
}
