package codec

import "github.com/sluice-bus/sluice/sdk/wire"

// fill reads the opts of a SUBSCRIBE.
func fillOptions(o *wire.SubscribeOptions, it *item, lim wire.Limits) (err *wire.Error) {
	if it.optsKind == 0 || it.optsKind == 'n' {
		return nil
	}
	if it.optsKind != '{' {
		return wire.Errorf(wire.BadRequest, "opts must be an object")
	}
	in := &it.opts
	if err = fillStart(o, in); err != nil {
		return err
	}
	if o.MaxInflight, err = intField("maxInflight", &in.maxInflight, 1, wire.MaxInflight); err != nil {
		return err
	}
	if o.AckTimeoutMS, err = wholeField("ackTimeoutMs", &in.ackTimeoutMS, 1, wire.MaxAckTimeoutMS); err != nil {
		return err
	}
	if o.MaxAttempts, err = intField("maxAttempts", &in.maxAttempts, 1, wire.MaxDeliverAttempts); err != nil {
		return err
	}
	if o.MaxBatch, err = intField("maxBatch", &in.maxBatch, 1, wire.MaxDeliverBatch); err != nil {
		return err
	}
	if o.DedupeTTLMS, err = wholeField("dedupeTtlMs", &in.dedupeTTLMS, 1, wire.MaxDedupeTTLMS); err != nil {
		return err
	}
	if o.Ordered, err = boolField("ordered", &in.ordered); err != nil {
		return err
	}
	var flags memberReader
	o.ExactlyOnce = flags.flag("exactlyOnce", &in.exactlyOnce)
	o.AutoAck = flags.flag("autoAck", &in.autoAck)
	o.Rebalance = flags.flag("rebalance", &in.rebalance)
	if flags.err != nil {
		return flags.err
	}
	o.Filter, err = filterField(&in.filter, lim)
	return err
}

// fillStart reads where the subscription starts.
func fillStart(o *wire.SubscribeOptions, in *options) (err *wire.Error) {
	if o.From, err = stringField("from", &in.from); err != nil {
		return err
	}
	if o.TS, err = wholeField("ts", &in.ts, 0, wire.MaxTS); err != nil {
		return err
	}
	if in.afterID.given() {
		if o.AfterID, err = stringField("afterId", &in.afterID); err == nil {
			err = checkID("afterId", o.AfterID)
		}
		if err != nil {
			return err
		}
	}
	if o.From != wire.FromPositions {
		return CheckFrom(o.From, o.TS, o.AfterID)
	}
	if !in.positions.given() {
		_, err = PositionsOf(nil)
		return err
	}
	o.Positions, err = ParsePositions(in.positions.raw)
	return err
}

// CheckFrom checks how a start is given, except for positions: from one of the four
// other names or absent, with the ts or afterId that it needs.
func CheckFrom(from string, ts *int64, afterID string) *wire.Error {
	switch from {
	case "", wire.FromLatest, wire.FromEarliest:
		return nil
	case wire.FromTS:
		if ts == nil {
			return wire.Errorf(wire.BadRequest, "ts is missing: from ts needs it")
		}
		return nil
	case wire.FromAfterID:
		if afterID == "" {
			return wire.Errorf(wire.BadRequest, "afterId is missing: from afterId needs it")
		}
		return nil
	}
	return wire.Errorf(wire.BadRequest, "from is %s; allowed are latest, earliest, ts, afterId and positions", shown(from))
}

func filterField(v *value, lim wire.Limits) (*wire.Filter, *wire.Error) {
	if !v.given() {
		return nil, nil
	}
	if v.kind != '{' {
		return nil, wire.Errorf(wire.BadRequest, "filter must be an object with key, tag and header")
	}
	var key, tag, header value
	s := scanner{b: v.raw}
	_ = s.members(func(name value) *SyntaxError { // scanned before: this finds no fault
		switch string(name.name()) {
		case "key":
			return s.into(&key)
		case "tag":
			return s.into(&tag)
		case "header":
			return s.into(&header)
		}
		return s.skip()
	})
	f := new(wire.Filter)
	var err *wire.Error
	if f.Key, err = optionalString("filter.key", &key); err != nil {
		return nil, err
	}
	if f.Tag, err = optionalString("filter.tag", &tag); err != nil {
		return nil, err
	}
	if f.Headers, err = headersField(nil, "filter.header", &header, lim); err != nil {
		return nil, err
	}
	return f, nil
}

// optionalString tells an empty string from none, which is nil.
func optionalString(name string, v *value) (*string, *wire.Error) {
	if !v.given() {
		return nil, nil
	}
	text, err := stringField(name, v)
	if err != nil {
		return nil, err
	}
	return &text, nil
}
