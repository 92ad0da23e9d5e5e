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

func (n *nackValues) read() (k wire.Nack, err *wire.Error) {
	if k.Reason, err = stringField("reason", &n.reason); err != nil {
		return k, err
	}
	if len(k.Reason) > wire.MaxReasonBytes {
		return k, wire.Errorf(wire.BadRequest, "reason is %d bytes long; at most %d are allowed", len(k.Reason), wire.MaxReasonBytes)
	}
	if k.DelayMS, err = wholeField("delay_ms", &n.delayMS, 0, wire.MaxDelayMS); err != nil {
		return k, err
	}
	// Not in a loop over pointers to them: with these, every frame would be on the heap.
	dead, err := boolField("dead_letter", &n.deadLetter)
	if err != nil {
		return k, err
	}
	hold, err := boolField("hold", &n.hold)
	if err != nil {
		return k, err
	}
	k.DeadLetter, k.Hold = dead != nil && *dead, hold != nil && *hold
	switch {
	case k.DeadLetter && k.Hold:
		return k, wire.Errorf(wire.BadRequest, "dead_letter and hold are both true: an event either goes to the dead letters or comes again; only one of them is allowed")
	case k.Hold && k.DelayMS == nil:
		return k, wire.Errorf(wire.BadRequest, "delay_ms is missing: hold needs it, a whole number from 0 to %d", int64(wire.MaxDelayMS))
	}
	return k, nil
}

// nack appends the members that are given.
func (w *optsWriter) nack(k *wire.Nack) {
	w.text("reason", k.Reason)
	w.whole("delay_ms", k.DelayMS)
	w.flag("dead_letter", k.DeadLetter)
	w.flag("hold", k.Hold)
}
