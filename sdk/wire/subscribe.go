package wire

// fill reads the opts of a SUBSCRIBE.
func (o *SubscribeOptions) fill(it *item, lim Limits) (err *Error) {
	if it.optsKind == 0 || it.optsKind == 'n' {
		return nil
	}
	if it.optsKind != '{' {
		return Errorf(BadRequest, "opts must be an object")
	}
	in := &it.opts
	if err = o.fillStart(in); err != nil {
		return err
	}
	if o.MaxInflight, err = intField("maxInflight", &in.maxInflight, 1, MaxInflight); err != nil {
		return err
	}
	if o.AckTimeoutMS, err = wholeField("ackTimeoutMs", &in.ackTimeoutMS, 1, MaxAckTimeoutMS); err != nil {
		return err
	}
	if o.MaxAttempts, err = intField("maxAttempts", &in.maxAttempts, 1, MaxDeliverAttempts); err != nil {
		return err
	}
	if o.MaxBatch, err = intField("maxBatch", &in.maxBatch, 1, MaxDeliverBatch); err != nil {
		return err
	}
	if o.DedupeTTLMS, err = wholeField("dedupeTtlMs", &in.dedupeTTLMS, 1, MaxDedupeTTLMS); err != nil {
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
func (o *SubscribeOptions) fillStart(in *options) (err *Error) {
	if o.From, err = stringField("from", &in.from); err != nil {
		return err
	}
	if o.TS, err = wholeField("ts", &in.ts, 0, MaxTS); err != nil {
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
	if o.From != FromPositions {
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
func CheckFrom(from string, ts *int64, afterID string) *Error {
	switch from {
	case "", FromLatest, FromEarliest:
		return nil
	case FromTS:
		if ts == nil {
			return Errorf(BadRequest, "ts is missing: from ts needs it")
		}
		return nil
	case FromAfterID:
		if afterID == "" {
			return Errorf(BadRequest, "afterId is missing: from afterId needs it")
		}
		return nil
	}
	return Errorf(BadRequest, "from is %s; allowed are latest, earliest, ts, afterId and positions", shown(from))
}

func filterField(v *value, lim Limits) (*Filter, *Error) {
	if !v.given() {
		return nil, nil
	}
	if v.kind != '{' {
		return nil, Errorf(BadRequest, "filter must be an object with key, tag and header")
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
	f := new(Filter)
	var err *Error
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
func optionalString(name string, v *value) (*string, *Error) {
	if !v.given() {
		return nil, nil
	}
	text, err := stringField(name, v)
	if err != nil {
		return nil, err
	}
	return &text, nil
}
