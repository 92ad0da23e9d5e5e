package codec

import "github.com/sluice-bus/sluice/sdk/wire"

// frame holds where a client frame's members are, found in one pass over its text. The last of
// members with the same name wins.
type frame struct {
	op, corr, topic, group, token value
	item                          item // payload, payload_base64 and opts
	id, ids                       value
	nack                          nackValues
	extendMS                      value

	events      value // the array as a whole
	batch       []wire.PublishItem
	batchEvents int // elements of events, those beyond the limit included
}

// item holds the members of one event to publish.
type item struct {
	topic, payload, payload64 value
	optsValue                 value
	opts                      options // of optsValue, if it is an object
	unknown                   *string // a member that is none of these
}

// options holds the members of opts, of PUBLISH and SUBSCRIBE alike: which op it is may stand
// behind them in the frame.
type options struct {
	id, key, headers, tags, causedBy, sid value
	ts, ttlMS, deliverAt, delayMS         value

	from, afterID, positions, filter                 value
	maxInflight, ackTimeoutMS, maxAttempts, maxBatch value
	ordered, exactlyOnce, dedupeTTLMS                value
	autoAck, format, rebalance                       value

	unknown *string // a member that is none of these
}

// member scans the value of one member of the frame.
func (f *frame) member(s *scanner, name []byte, lim wire.Limits) *SyntaxError {
	switch slot := f.slot(name); {
	case slot == &f.events && s.peek() == '[':
		return f.readEvents(s, lim)
	case slot != nil:
		return s.into(slot)
	}
	return f.item.member(s, name)
}

// slot returns where the member goes, or nil when it belongs to the item.
func (f *frame) slot(name []byte) *value {
	switch string(name) {
	case "op":
		return &f.op
	case "corr":
		return &f.corr
	case "topic":
		return &f.topic
	case "group":
		return &f.group
	case "token":
		return &f.token
	case "id":
		return &f.id
	case "ids":
		return &f.ids
	case "extend_ms":
		return &f.extendMS
	case "events":
		return &f.events
	}
	return f.nack.slot(name)
}

// into scans a value and puts it into slot, also one that replaces an earlier.
func (s *scanner) into(slot *value) (err *SyntaxError) {
	*slot, err = s.value()
	return err
}

// skip scans a value without keeping it.
func (s *scanner) skip() *SyntaxError {
	_, err := s.value()
	return err
}

// member scans the value of one member of an event to publish.
func (it *item) member(s *scanner, name []byte) *SyntaxError {
	switch string(name) {
	case "topic":
		return s.into(&it.topic)
	case "payload":
		return s.into(&it.payload)
	case "payload_base64":
		return s.into(&it.payload64)
	case "opts":
		it.opts = options{}
		if s.peek() != '{' {
			return s.into(&it.optsValue)
		}
		it.optsValue = value{kind: '{'}
		return s.members(func(name []byte) *SyntaxError {
			if slot := it.opts.slot(name); slot != nil {
				return s.into(slot)
			}
			return s.unknown(name, &it.opts.unknown)
		})
	}
	return s.unknown(name, &it.unknown)
}

// unknown scans the value of a member that is not known, and keeps the first one's name.
func (s *scanner) unknown(name []byte, first **string) *SyntaxError {
	if *first == nil {
		text := string(name)
		*first = &text
	}
	return s.skip()
}

func (o *options) slot(name []byte) *value {
	switch string(name) {
	case "id":
		return &o.id
	case "ts":
		return &o.ts
	case "key":
		return &o.key
	case "headers":
		return &o.headers
	case "tags":
		return &o.tags
	case "caused_by":
		return &o.causedBy
	case "sid":
		return &o.sid
	case "ttl_ms":
		return &o.ttlMS
	case "deliver_at":
		return &o.deliverAt
	case "delay_ms":
		return &o.delayMS
	case "from":
		return &o.from
	case "afterId":
		return &o.afterID
	case "positions":
		return &o.positions
	case "filter":
		return &o.filter
	case "maxInflight":
		return &o.maxInflight
	case "ackTimeoutMs":
		return &o.ackTimeoutMS
	case "maxAttempts":
		return &o.maxAttempts
	case "maxBatch":
		return &o.maxBatch
	case "ordered":
		return &o.ordered
	case "exactlyOnce":
		return &o.exactlyOnce
	case "dedupeTtlMs":
		return &o.dedupeTTLMS
	case "autoAck":
		return &o.autoAck
	case "format":
		return &o.format
	case "rebalance":
		return &o.rebalance
	}
	return nil
}

// readEvents scans the array of a batch and decodes its events on the way, so that a batch of
// megabytes is read once. Those over the limit are counted only: their batch is refused anyway.
func (f *frame) readEvents(s *scanner, lim wire.Limits) *SyntaxError {
	f.batch, f.batchEvents = nil, 0
	start := s.i
	err := s.elements(func() *SyntaxError {
		f.batchEvents++
		if f.batchEvents > lim.BatchEvents {
			return s.skip()
		}
		p, err := scanItem(s, lim)
		f.batch = append(f.batch, p)
		return err
	})
	f.events = value{kind: '[', raw: s.b[start:s.i:s.i]}
	return err
}

// scanItem scans and decodes one event of a batch.
func scanItem(s *scanner, lim wire.Limits) (wire.PublishItem, *SyntaxError) {
	if s.peek() != '{' {
		err := s.skip()
		return wire.PublishItem{Err: wire.Errorf(wire.BadRequest, "an event of a batch must be a JSON object")}, err
	}
	var it item
	if err := s.members(func(name []byte) *SyntaxError { return it.member(s, name) }); err != nil {
		return wire.PublishItem{}, err
	}
	p := it.decode(inItem, lim)
	if it.topic.given() {
		r := memberReader{}
		p.Event.Topic = r.text("topic", &it.topic)
		r.check(CheckTopic(p.Event.Topic))
		if p.Err == nil {
			p.Err = r.err
		}
	}
	if p.Err != nil {
		return wire.PublishItem{Event: wire.Event{Topic: p.Event.Topic}, Err: p.Err}, nil
	}
	return p, nil
}
