package codec

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
)

var errNotObject = errors.New("a frame must be a JSON object")

// DecodeRequest decodes one text frame of a client. It checks shape and
// limits, so what it lets pass can be acted on. The request keeps nothing of
// frame. It is never nil: with an error it still carries Corr, where that
// could be read, for the answer.
//
// Members that the op does not know are ignored, null counts as absent (except
// as a payload), and of members with the same name the last counts.
func DecodeRequest(text []byte, lim wire.Limits) (*Request, *wire.Error) {
	r := new(Request)
	var f frame
	err := f.read(text, lim)
	corr, badCorr := stringField("corr", &f.corr)
	if badCorr == nil && f.corr.given() && utf8.ValidString(corr) {
		r.Corr, r.HasCorr = corr, true
	}
	if bad := checkUTF8(text); bad != nil {
		err = bad
	}
	switch {
	case errors.Is(err, errNotObject):
		return r, wire.Errorf(wire.BadRequest, "%v", err)
	case err != nil:
		return r, wire.Errorf(wire.BadJSON, "the frame is not JSON: %v", err)
	case badCorr != nil:
		return r, badCorr
	}
	return r, r.fill(&f, lim)
}

// fill decodes the members that the frame's op needs.
func (r *Request) fill(f *frame, lim wire.Limits) *wire.Error {
	if !f.op.given() {
		return wire.Errorf(wire.BadRequest, "op is missing")
	}
	if f.op.kind != '"' {
		return wire.Errorf(wire.BadRequest, "op must be a string")
	}
	name := f.op.name()
	switch string(name) {
	case wire.OpPublish:
		r.Op = wire.OpPublish
		return r.fillPublish(f, lim)
	case wire.OpAck:
		r.Op = wire.OpAck
		return r.fillSettle(f)
	case wire.OpNack:
		r.Op = wire.OpNack
		return r.fillSettle(f)
	case wire.OpModAck:
		r.Op = wire.OpModAck
		return r.fillSettle(f)
	case wire.OpSubscribe:
		r.Op = wire.OpSubscribe
		if err := r.fillSubscription(f); err != nil {
			return err
		}
		return fillOptions(&r.Subscribe, &f.item, lim)
	case wire.OpUnsubscribe:
		r.Op = wire.OpUnsubscribe
		return r.fillSubscription(f)
	case wire.OpPause:
		r.Op = wire.OpPause
		return r.fillSubscription(f)
	case wire.OpResume:
		r.Op = wire.OpResume
		return r.fillSubscription(f)
	case wire.OpPing:
		r.Op = wire.OpPing
		return nil
	case wire.OpAuth:
		r.Op = wire.OpAuth
		return r.fillAuth(f)
	}
	return wire.Errorf(wire.UnknownOp, "there is no op %s", shown(name))
}

func (r *Request) fillAuth(f *frame) (err *wire.Error) {
	if r.Token, err = stringField("token", &f.token); err != nil {
		return err
	}
	if len(r.Token) > wire.MaxTokenBytes {
		return wire.Errorf(wire.BadRequest, "token is %d bytes long; at most %d are allowed", len(r.Token), wire.MaxTokenBytes)
	}
	return nil
}

// fillSubscription reads what names a subscription: a topic and maybe a group.
func (r *Request) fillSubscription(f *frame) (err *wire.Error) {
	if r.Topic, err = stringField("topic", &f.topic); err != nil {
		return err
	}
	if err = CheckReadTopic(r.Topic); err != nil {
		return err
	}
	if r.Group, err = stringField("group", &f.group); err != nil || r.Group == "" {
		return err
	}
	return CheckGroup(r.Group)
}

// fillSettle reads an ACK, NACK or MODACK.
func (r *Request) fillSettle(f *frame) (err *wire.Error) {
	if err = r.fillSubscription(f); err != nil {
		return err
	}
	if r.Group == "" {
		return wire.Errorf(wire.BadRequest, "group is missing")
	}
	if r.IDs, err = stringsField("ids", &f.ids, wire.MaxSettleIDs, checkID); err != nil {
		return err
	}
	if f.id.given() {
		id, err := stringField("id", &f.id)
		if err == nil {
			err = CheckID(id)
		}
		if err != nil {
			return err
		}
		r.IDs = append(r.IDs, id)
	}
	if len(r.IDs) == 0 {
		return wire.Errorf(wire.BadRequest, "id is missing: give id, or ids with 1 to %d of them", wire.MaxSettleIDs)
	}
	switch r.Op {
	case wire.OpNack:
		r.Nack, err = f.nack.read()
	case wire.OpModAck:
		r.ExtendMS, err = extendField(&f.extendMS)
	}
	return err
}

// extendField is by how much a deadline is extended.
func extendField(v *value) (*int64, *wire.Error) {
	ms, err := wholeField("extend_ms", v, 0, wire.MaxDelayMS)
	if err == nil && ms == nil {
		err = wire.Errorf(wire.BadRequest, "extend_ms is missing")
	}
	return ms, err
}

func (r *Request) fillPublish(f *frame, lim wire.Limits) (err *wire.Error) {
	if r.Topic, err = stringField("topic", &f.topic); err != nil {
		return err
	}
	if f.events.given() {
		return r.fillBatch(f, lim)
	}
	if err = CheckTopic(r.Topic); err != nil {
		return err
	}
	r.Publish = f.item.decode(lim)
	r.Publish.Event.Topic = r.Topic
	err, r.Publish.Err = r.Publish.Err, nil
	return err
}

func (r *Request) fillBatch(f *frame, lim wire.Limits) *wire.Error {
	if f.events.kind != '[' {
		return wire.Errorf(wire.BadRequest, "events must be an array of objects")
	}
	if f.item.payload.given() || f.item.payload64.given() {
		return wire.Errorf(wire.BadRequest, "give either payload or events, not both")
	}
	if k := f.item.optsKind; k != 0 && k != 'n' { // null is absent
		return wire.Errorf(wire.BadRequest, "opts does not apply to a batch: give each of events its own")
	}
	if f.batchEvents > lim.BatchEvents {
		return wire.Errorf(wire.PayloadTooLarge, "the batch holds %d events; at most %d are allowed", f.batchEvents, lim.BatchEvents)
	}
	if size := len(f.events.raw); size > lim.BatchBytes {
		return wire.Errorf(wire.PayloadTooLarge, "the batch is %d bytes long; at most %d are allowed", size, lim.BatchBytes)
	}
	if r.Topic != "" {
		if err := CheckTopic(r.Topic); err != nil {
			return err
		}
	}
	r.IsBatch, r.Events = true, f.batch
	for i := range r.Events {
		p := &r.Events[i]
		if p.Err != nil || p.Event.Topic != "" {
			continue
		}
		if p.Event.Topic = r.Topic; r.Topic == "" {
			*p = wire.PublishItem{Err: wire.Errorf(wire.BadRequest, "topic is missing, in the event as well as in the frame")}
		}
	}
	return nil
}

// ParsePublishLine decodes one line of an NDJSON publish: an object with payload or payload_base64,
// and opts. Event.Topic is left empty, also where the line has one: the request's path names the
// topic.
func ParsePublishLine(line []byte, lim wire.Limits) wire.PublishItem {
	if err := checkUTF8(line); err != nil {
		return wire.PublishItem{Err: wire.Errorf(wire.BadJSON, "the line is not JSON: %v", err)}
	}
	s := scanner{b: line}
	s.space()
	var it item
	var err *SyntaxError
	isObject := s.peek() == '{'
	if isObject {
		err = s.members(func(name value) *SyntaxError { return it.member(&s, name.name()) })
	} else {
		err = s.skip()
	}
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return wire.PublishItem{Err: wire.Errorf(wire.BadJSON, "the line is not JSON: %v", err)}
	}
	if !isObject {
		return wire.PublishItem{Err: wire.Errorf(wire.BadRequest, "a line must be a JSON object with payload, or payload_base64, and opts")}
	}
	p := it.decode(lim)
	if p.Err != nil {
		return wire.PublishItem{Err: p.Err}
	}
	return p
}

// decode makes the event, all but its topic.
func (it *item) decode(lim wire.Limits) (p wire.PublishItem) {
	p.Event.Payload, p.Event.Binary, p.Err = it.decodePayload(lim)
	if p.Err != nil || it.optsKind == 0 || it.optsKind == 'n' {
		return p
	}
	if it.optsKind != '{' {
		p.Err = wire.Errorf(wire.BadRequest, "opts must be an object")
		return p
	}
	p.Err = it.opts.decode(&p, lim)
	return p
}

func (it *item) decodePayload(lim wire.Limits) (payload []byte, binary bool, err *wire.Error) {
	switch {
	case it.payload.given() && it.payload64.given():
		return nil, false, wire.Errorf(wire.BadRequest, "give either payload or payload_base64, not both")
	case it.payload64.given():
		payload, err = base64Field("payload_base64", &it.payload64, lim)
		return payload, true, err
	case it.payload.kind == 0:
		return nil, false, wire.Errorf(wire.BadRequest, "payload is missing: give payload (any JSON value) or payload_base64")
	}
	payload, err = it.payload.payload(lim)
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

// growFor gives arena room for the strings of an event's members: one
// allocation instead of one per string. For what could waste memory, which the
// event would keep for as long as it lives, there is none.
func growFor(arena *strings.Builder, members ...*value) {
	const most = 512
	size := 0
	for _, v := range members {
		if v.given() && !v.spaced && !v.escaped {
			size += len(v.raw)
		}
	}
	if size <= most {
		arena.Grow(size)
	}
}

// decode reads the opts of a PUBLISH into p.
func (o *options) decode(p *wire.PublishItem, lim wire.Limits) (err *wire.Error) {
	e := &p.Event
	var arena strings.Builder
	growFor(&arena, &o.id, &o.key, &o.sid, &o.headers)
	if o.id.given() {
		if e.ID, err = stringInto(&arena, "id", &o.id); err == nil {
			err = CheckID(e.ID)
		}
		if err != nil {
			return err
		}
	}
	if p.HasTS = o.ts.given(); p.HasTS {
		if e.TS, err = wholeOf("ts", &o.ts, 0, wire.MaxTS); err != nil {
			return err
		}
	}
	if p.Later.DeliverAt, err = wholeField("deliver_at", &o.deliverAt, 0, wire.MaxTS); err != nil {
		return err
	}
	if p.Later.DelayMS, err = wholeField("delay_ms", &o.delayMS, 0, wire.MaxLaterMS); err != nil {
		return err
	}
	if e.Key, err = stringInto(&arena, "key", &o.key); err != nil {
		return err
	}
	if err = CheckKey(e.Key, lim); err != nil {
		return err
	}
	if e.Headers, err = headersField(&arena, "headers", &o.headers, lim); err != nil {
		return err
	}
	if e.Tags, err = stringsField("tags", &o.tags, wire.MaxTags, checkTag); err != nil {
		return err
	}
	if e.CausedBy, err = stringsField("caused_by", &o.causedBy, wire.MaxTags, checkID); err != nil {
		return err
	}
	if e.SID, err = stringInto(&arena, "sid", &o.sid); err != nil {
		return err
	}
	if len(e.SID) > wire.MaxSIDBytes {
		return wire.Errorf(wire.BadRequest, "sid is %d bytes long; at most %d are allowed", len(e.SID), wire.MaxSIDBytes)
	}
	if o.ttlMS.given() {
		e.TTLMS, err = wholeOf("ttl_ms", &o.ttlMS, 1, wire.MaxTTLMS)
	}
	return err
}
