package codec

import "github.com/sluice-bus/sluice/sdk/wire"

// nackValues are the members of a nack, in a frame or in a body.
type nackValues struct{ reason, delayMS, deadLetter, hold value }

// slot returns where the member goes, or nil when it is no nack's.
func (n *nackValues) slot(name []byte) *value {
	switch string(name) {
	case "reason":
		return &n.reason
	case "delay_ms":
		return &n.delayMS
	case "dead_letter":
		return &n.deadLetter
	case "hold":
		return &n.hold
	}
	return nil
}

func (r *memberReader) nack(n *nackValues) (k wire.Nack) {
	k.Reason = r.text("reason", &n.reason)
	if len(k.Reason) > wire.MaxReasonBytes {
		r.fail("reason is %d bytes long; at most %d are allowed", len(k.Reason), wire.MaxReasonBytes)
	}
	k.DelayMS = r.optionalNumber("delay_ms", &n.delayMS, 0, wire.MaxDelayMS)
	k.DeadLetter = r.flag("dead_letter", &n.deadLetter)
	k.Hold = r.flag("hold", &n.hold)
	switch {
	case k.DeadLetter && k.Hold:
		r.fail("dead_letter and hold are both true: an event either goes to the dead letters or comes again; only one of them is allowed")
	case k.Hold && k.DelayMS == nil:
		r.fail("delay_ms is missing: hold needs it, a whole number from 0 to %d", int64(wire.MaxDelayMS))
	}
	return k
}

// extend reads by how much a deadline is extended.
func (r *memberReader) extend(v *value) *int64 {
	if !v.given() {
		r.fail("extend_ms is missing")
	}
	return r.optionalNumber("extend_ms", v, 0, wire.MaxDelayMS)
}

// nack appends the members that are given.
func (w *memberWriter) nack(k *wire.Nack) {
	w.text("reason", k.Reason)
	w.whole("delay_ms", k.DelayMS)
	w.flag("dead_letter", k.DeadLetter)
	w.flag("hold", k.Hold)
}
