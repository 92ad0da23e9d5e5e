package codec

import (
	"strconv"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// The functions below append a client's frames. An empty corr, group, reason or token is left out.

func appendOp(dst []byte, op, corr string) []byte {
	dst = append(append(append(dst, `{"op":"`...), op...), '"')
	return appendCorr(dst, corr, corr != "")
}

// AppendPublish appends a PUBLISH of one event: its topic, its payload and the opts that are set.
// Partition and Seq are not sent; TS only with HasTS.
func AppendPublish(dst []byte, corr string, p *wire.PublishItem) []byte {
	dst = appendOp(dst, wire.OpPublish, corr)
	dst = append(AppendString(append(dst, `,"topic":`...), p.Event.Topic), ',')
	return append(appendPublished(dst, p), '}')
}

// AppendPublishBatch appends a PUBLISH of several events; topic is that of every event whose own
// Topic is empty or the same.
func AppendPublishBatch(dst []byte, corr, topic string, items []wire.PublishItem) []byte {
	dst = appendOp(dst, wire.OpPublish, corr)
	if topic != "" {
		dst = AppendString(append(dst, `,"topic":`...), topic)
	}
	dst = append(dst, `,"events":[`...)
	for i := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		if own := items[i].Event.Topic; own != "" && own != topic {
			dst = append(AppendString(append(dst, `"topic":`...), own), ',')
		}
		dst = append(appendPublished(dst, &items[i]), '}')
	}
	return append(dst, "]}"...)
}

// AppendPublishLine appends one line of an NDJSON publish, without its newline.
func AppendPublishLine(dst []byte, p *wire.PublishItem) []byte {
	return append(appendPublished(append(dst, '{'), p), '}')
}

// appendPublished appends payload and opts, without braces.
func appendPublished(dst []byte, p *wire.PublishItem) []byte {
	const open = `,"opts":{`
	w := memberWriter{dst: append(appendPayload(dst, &p.Event), open...)}
	empty := len(w.dst)
	w.text("id", p.Event.ID)
	if p.HasTS {
		w.whole("ts", &p.Event.TS)
	}
	w.whole("deliver_at", p.Later.DeliverAt)
	w.whole("delay_ms", p.Later.DelayMS)
	w.optional(&p.Event)
	if len(w.dst) == empty {
		return w.dst[:empty-len(open)]
	}
	return append(w.dst, '}')
}

// AppendSubscribe appends a SUBSCRIBE; a nil o is one without opts.
func AppendSubscribe(dst []byte, corr, topic, group string, o *wire.SubscribeOptions) []byte {
	dst = appendNames(appendOp(dst, wire.OpSubscribe, corr), topic, group)
	if o == nil {
		return append(dst, '}')
	}
	return append(appendOpts(append(dst, `,"opts":`...), o), '}')
}

// appendOpts appends the opts of a SUBSCRIBE.
func appendOpts(dst []byte, o *wire.SubscribeOptions) []byte {
	w := memberWriter{dst: append(dst, '{')}
	w.text("from", o.From)
	switch o.From { // a place beside another from is refused
	case wire.FromTS:
		w.whole("ts", o.TS)
	case wire.FromAfterID:
		w.text("afterId", o.AfterID)
	case wire.FromPositions:
		w.dst = AppendPositions(w.name("positions"), o.Positions)
	}
	w.int("maxInflight", o.MaxInflight)
	w.whole("ackTimeoutMs", o.AckTimeoutMS)
	w.int("maxAttempts", o.MaxAttempts)
	w.int("maxBatch", o.MaxBatch)
	if o.Ordered != nil {
		w.dst = strconv.AppendBool(w.name("ordered"), *o.Ordered)
	}
	w.flag("exactlyOnce", o.ExactlyOnce)
	w.whole("dedupeTtlMs", o.DedupeTTLMS)
	w.flag("autoAck", o.AutoAck)
	w.text("format", o.Format)
	w.flag("rebalance", o.Rebalance)
	if f := o.Filter; f != nil {
		inner := memberWriter{dst: append(w.name("filter"), '{')}
		if f.Key != nil {
			inner.dst = AppendString(inner.name("key"), *f.Key)
		}
		if f.Tag != nil {
			inner.dst = AppendString(inner.name("tag"), *f.Tag)
		}
		if len(f.Headers) > 0 {
			inner.dst = appendHeaders(inner.name("header"), f.Headers)
		}
		w.dst = append(inner.dst, '}')
	}
	return append(w.dst, '}')
}

// memberWriter appends the given members of an object.
type memberWriter struct{ dst []byte }

// name appends a member's name, and the comma before it. Names need no escapes.
func (w *memberWriter) name(name string) []byte {
	if w.dst[len(w.dst)-1] != '{' {
		w.dst = append(w.dst, ',')
	}
	return append(append(append(w.dst, '"'), name...), `":`...)
}

func (w *memberWriter) texts(name string, list []string) {
	if len(list) > 0 {
		w.dst = appendStrings(w.name(name), list)
	}
}

func (w *memberWriter) text(name, s string) {
	if s != "" {
		w.dst = AppendString(w.name(name), s)
	}
}

func (w *memberWriter) whole(name string, n *int64) {
	if n != nil {
		w.dst = strconv.AppendInt(w.name(name), *n, 10)
	}
}

func (w *memberWriter) int(name string, n *int) {
	if n != nil {
		w.dst = strconv.AppendInt(w.name(name), int64(*n), 10)
	}
}

func (w *memberWriter) flag(name string, is bool) {
	if is {
		w.dst = append(w.name(name), "true"...)
	}
}

// AppendOnSubscription appends an UNSUBSCRIBE, PAUSE or RESUME, as op says.
func AppendOnSubscription(dst []byte, op, corr, topic, group string) []byte {
	return append(appendNames(appendOp(dst, op, corr), topic, group), '}')
}

// AppendAck appends an ACK of one id or more.
func AppendAck(dst []byte, corr, topic, group string, ids ...string) []byte {
	return append(appendSettle(dst, wire.OpAck, corr, topic, group, ids), '}')
}

// AppendToAck adds ids to the ACK that dst ends with.
func AppendToAck(dst []byte, ids ...string) []byte {
	dst = dst[:len(dst)-1]
	if last := len(dst) - 1; dst[last] == ']' {
		dst = append(dst[:last], ',')
	} else {
		dst = append(dst, `,"ids":[`...)
	}
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, id)
	}
	return append(dst, "]}"...)
}

// AppendNack appends a NACK.
func AppendNack(dst []byte, corr, topic, group string, ids []string, k wire.Nack) []byte {
	w := memberWriter{dst: appendSettle(dst, wire.OpNack, corr, topic, group, ids)}
	w.nack(&k)
	return append(w.dst, '}')
}

// AppendModAck appends a MODACK: the deadline becomes now + extendMS.
func AppendModAck(dst []byte, corr, topic, group string, ids []string, extendMS int64) []byte {
	dst = appendSettle(dst, wire.OpModAck, corr, topic, group, ids)
	return append(strconv.AppendInt(append(dst, `,"extend_ms":`...), extendMS, 10), '}')
}

func appendSettle(dst []byte, op, corr, topic, group string, ids []string) []byte {
	dst = appendNames(appendOp(dst, op, corr), topic, group)
	if len(ids) == 1 {
		return AppendString(append(dst, `,"id":`...), ids[0])
	}
	return appendStrings(append(dst, `,"ids":`...), ids)
}

// AppendPing appends a PING.
func AppendPing(dst []byte, corr string) []byte { return append(appendOp(dst, wire.OpPing, corr), '}') }

// AppendAuth appends an AUTH.
func AppendAuth(dst []byte, corr, token string) []byte {
	dst = appendOp(dst, wire.OpAuth, corr)
	if token != "" {
		dst = AppendString(append(dst, `,"token":`...), token)
	}
	return append(dst, '}')
}
