package codec

import (
	"cmp"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// options reads the opts of a SUBSCRIBE or a pull, of which those in the set allowed are.
func (r *memberReader) options(o *wire.SubscribeOptions, it *item, allowed uint, lim wire.Limits) {
	if !it.optsValue.given() {
		return
	}
	if it.optsValue.kind != '{' {
		r.fail("opts must be an object")
		return
	}
	in := &it.opts
	r.check(checkMembers(in.unknown, in.given(), allowed, optsMembers))
	o.From = r.nonEmpty("from", &in.from)
	o.TS = r.optionalNumber("ts", &in.ts, 0, wire.MaxTS)
	o.AfterID = r.id("afterId", &in.afterID)
	if r.err == nil && in.positions.given() {
		o.Positions, r.err = ParsePositions(in.positions.raw)
	}
	r.check(CheckFrom(o))
	o.MaxInflight = r.count("maxInflight", &in.maxInflight, wire.MaxInflight)
	o.AckTimeoutMS = r.optionalNumber("ackTimeoutMs", &in.ackTimeoutMS, 1, wire.MaxAckTimeoutMS)
	o.MaxAttempts = r.count("maxAttempts", &in.maxAttempts, wire.MaxDeliverAttempts)
	o.MaxBatch = r.count("maxBatch", &in.maxBatch, wire.MaxDeliverBatch)
	o.DedupeTTLMS = r.optionalNumber("dedupeTtlMs", &in.dedupeTTLMS, 1, wire.MaxDedupeTTLMS)
	if in.ordered.given() {
		ordered := r.flag("ordered", &in.ordered)
		o.Ordered = &ordered
	}
	o.ExactlyOnce = r.flag("exactlyOnce", &in.exactlyOnce)
	o.AutoAck = r.flag("autoAck", &in.autoAck)
	if o.Format = r.nonEmpty("format", &in.format); o.Format != "" && o.Format != wire.FormatEvent && o.Format != wire.FormatCloudEvents {
		r.fail("format is %s; allowed are event and cloudevents", shown(o.Format))
	}
	o.Rebalance = r.flag("rebalance", &in.rebalance)
	o.Filter = r.filter(&in.filter, lim)
}

// CheckFrom checks how a start is given: from one of the five names or absent, with the ts, afterId
// or positions that it needs, and with no other, which would be ignored.
func CheckFrom(o *wire.SubscribeOptions) *wire.Error {
	switch o.From {
	case "", wire.FromLatest, wire.FromEarliest, wire.FromTS, wire.FromAfterID, wire.FromPositions:
	default:
		return wire.Errorf(wire.BadRequest, "from is %s; allowed are latest, earliest, ts, afterId and positions", shown(o.From))
	}
	for _, place := range [...]struct {
		name  string // which is the name in from, too
		given bool
	}{
		{wire.FromTS, o.TS != nil}, {wire.FromAfterID, o.AfterID != ""}, {wire.FromPositions, o.Positions != nil},
	} {
		switch needed := place.name == o.From; {
		case needed && !place.given:
			return wire.Errorf(wire.BadRequest, "%s is missing: from %[1]s needs it", place.name)
		case place.given && !needed:
			return wire.Errorf(wire.BadRequest, "%s goes with from %[1]s, and from is %s", place.name, cmp.Or(o.From, "missing"))
		}
	}
	return nil
}

func (r *memberReader) filter(v *value, lim wire.Limits) *wire.Filter {
	if r.err != nil || !v.given() {
		return nil
	}
	if v.kind != '{' {
		r.fail("filter must be an object with key, tag and header")
		return nil
	}
	var key, tag, header value
	var unknown *string
	s := scanner{b: v.raw}
	_ = s.members(func(name []byte) *SyntaxError { // scanned before: this finds no fault
		switch string(name) {
		case "key":
			return s.into(&key)
		case "tag":
			return s.into(&tag)
		case "header":
			return s.into(&header)
		}
		return s.unknown(name, &unknown)
	})
	if unknown != nil {
		r.check(unknownMember(*unknown, []string{"key", "tag", "header"}))
	}
	f := &wire.Filter{
		Key: r.optionalText("filter.key", &key), Tag: r.optionalText("filter.tag", &tag),
		Headers: r.checkedHeaders("filter.header", &header, lim),
	}
	// What no event can have is refused, so that a subscription's filter takes no more memory than
	// an event.
	r.bound("filter.key", f.Key, lim.KeyBytes)
	r.bound("filter.tag", f.Tag, wire.MaxTagBytes)
	if r.err != nil && r.err.Code == wire.PayloadTooLarge {
		r.err = wire.Errorf(wire.BadRequest, "filter.header has more than the %d entries and %d bytes that are allowed",
			lim.HeaderCount, lim.HeaderBytes)
	}
	return f
}

// bound checks the length of a text that may be absent.
func (r *memberReader) bound(name string, text *string, most int) {
	if r.err == nil && text != nil && len(*text) > most {
		r.fail("%s is %d bytes long; at most %d are allowed", name, len(*text), most)
	}
}
