package codec

import (
	"slices"
	"strconv"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Pull is the body of a pull over HTTP.
type Pull struct {
	Max    int // how many events the answer may hold
	WaitMS int64
	// Subscribe are the opts. MaxBatch and Rebalance are of WebSockets alone.
	Subscribe wire.SubscribeOptions
}

// DecodePull decodes the body of a pull, as DecodeRequest does a frame. An empty body is a pull
// that says nothing.
func DecodePull(body []byte, lim wire.Limits) (p Pull, bad *wire.Error) {
	p = Pull{Max: wire.DefaultPull, WaitMS: wire.DefaultPullWaitMS}
	var most, wait value
	var it item
	var unknown *string
	s := scanner{b: body}
	bad = s.body(func(name []byte) *SyntaxError {
		switch string(name) {
		case "max":
			return s.into(&most)
		case "wait_ms":
			return s.into(&wait)
		case "opts":
			return it.member(&s, name)
		}
		return s.unknown(name, &unknown)
	})
	r := memberReader{err: bad}
	if unknown != nil {
		r.check(unknownMember(*unknown, []string{"max", "wait_ms", "opts"}))
	}
	if most.given() {
		p.Max = int(r.number("max", &most, 1, wire.MaxPull))
	}
	if wait.given() {
		p.WaitMS = r.number("wait_ms", &wait, 0, wire.MaxPullWaitMS)
	}
	r.options(&p.Subscribe, &it, inPullOpts, lim)
	return p, r.err
}

// Settlement is the body of an ack, a nack or a modack over HTTP.
type Settlement struct {
	Leases   []string
	Nack     wire.Nack // of a nack
	ExtendMS *int64    // of a modack
}

var settlementMembers = map[string][]string{
	wire.OpAck: {"leases"}, wire.OpModAck: {"leases", "extend_ms"}, wire.OpNack: {"leases", "reason", "delay_ms", "dead_letter", "hold"},
}

// DecodeSettlement decodes the body of an ack, a nack or a modack; op is the one of a frame that
// does the same.
func DecodeSettlement(op string, body []byte) (t Settlement, bad *wire.Error) {
	var leases, extend value
	var nack nackValues
	var unknown *string
	known := settlementMembers[op]
	s := scanner{b: body}
	bad = s.body(func(name []byte) *SyntaxError {
		switch slot := nack.slot(name); {
		case !slices.Contains(known, string(name)):
			return s.unknown(name, &unknown)
		case slot != nil:
			return s.into(slot)
		case string(name) == "extend_ms":
			return s.into(&extend)
		}
		return s.into(&leases)
	})
	r := memberReader{err: bad}
	if unknown != nil {
		r.check(unknownMember(*unknown, known))
	}
	if t.Leases = r.texts("leases", &leases, wire.MaxSettleIDs, anyString); len(t.Leases) == 0 {
		r.fail("leases is missing: give 1 to %d of them", wire.MaxSettleIDs)
	}
	switch op {
	case wire.OpNack:
		t.Nack = r.nack(&nack)
	case wire.OpModAck:
		t.ExtendMS = r.extend(&extend)
	}
	return t, r.err
}

// body scans an HTTP body, which is an object or empty.
func (s *scanner) body(member func(name []byte) *SyntaxError) *wire.Error {
	if s.space(); s.i == len(s.b) {
		return nil
	}
	isObject, err := s.object(member)
	switch {
	case err != nil:
		return wire.Errorf(wire.BadJSON, "the body is not JSON: %v", err)
	case !isObject:
		return wire.Errorf(wire.BadRequest, "the body must be a JSON object")
	}
	return nil
}

// AppendPulledStart begins the answer to a pull: AppendPulledItem for each delivery and
// AppendEventsEnd follow.
func AppendPulledStart(dst []byte) []byte { return append(dst, `{"events":[`...) }

// AppendPulledItem appends one delivery to the answer to a pull.
func AppendPulledItem(dst []byte, form Form, ev *wire.Event, attempt int, ackDeadlineMS int64, lease string) []byte {
	dst = AppendEventsItem(dst, form, ev, attempt, ackDeadlineMS)
	dst = AppendString(append(dst[:len(dst)-len("}}")], `,"lease":`...), lease)
	return append(dst, "}}"...)
}

// AppendSettled appends the answer to an ack, a nack or a modack: nil is ok.
func AppendSettled(dst []byte, results []*wire.Error) []byte {
	dst = append(dst, `{"results":[`...)
	for i, e := range results {
		if i > 0 {
			dst = append(dst, ',')
		}
		if e == nil {
			dst = append(dst, `{"ok":true}`...)
		} else {
			dst = AppendErrorBody(dst, e)
		}
	}
	return append(dst, "]}"...)
}

// AppendPull appends the body of a pull.
func AppendPull(dst []byte, p *Pull) []byte {
	dst = strconv.AppendInt(append(dst, `{"max":`...), int64(p.Max), 10)
	dst = strconv.AppendInt(append(dst, `,"wait_ms":`...), p.WaitMS, 10)
	return append(appendOpts(append(dst, `,"opts":`...), &p.Subscribe), '}')
}

// AppendSettlement appends the body of an ack, a nack or a modack.
func AppendSettlement(dst []byte, t *Settlement) []byte {
	w := memberWriter{dst: append(dst, '{')}
	w.dst = appendStrings(w.name("leases"), t.Leases)
	w.nack(&t.Nack)
	w.whole("extend_ms", t.ExtendMS)
	return append(w.dst, '}')
}

// ParsePulled reads the answer to a pull.
func ParsePulled(body []byte) ([]wire.Delivery, error) {
	var m answer
	if err := m.readWhole("a pull's answer", body); err != nil {
		return nil, err
	}
	return m.deliveries, nil
}

// ParseSettled reads the answer to an ack, a nack or a modack: one error for each lease, nil where
// it is settled.
func ParseSettled(body []byte) ([]*wire.Error, error) {
	var m answer
	if err := m.readWhole("a settlement's answer", body); err != nil {
		return nil, err
	}
	errs := make([]*wire.Error, len(m.results))
	for i := range m.results {
		errs[i] = m.results[i].Err
	}
	return errs, nil
}
