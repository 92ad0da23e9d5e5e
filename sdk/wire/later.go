package wire

// MaxLaterMS is how far ahead an event may be scheduled: one year.
const MaxLaterMS = 365 * 24 * 60 * 60 * 1000

// Later is when an event is to go into the log, as its publisher said it; at most one of the two is
// set.
type Later struct {
	DeliverAt *int64 // milliseconds since the epoch
	DelayMS   *int64 // from its acceptance
}

// Given says that there is something to wait for.
func (l Later) Given() bool { return l.DeliverAt != nil || l.DelayMS != nil }

// DueAt is when an event that is accepted at now is due, both in milliseconds since the epoch; 0
// where its publisher did not say.
func (p *PublishItem) DueAt(now int64) (int64, *Error) {
	at := now
	switch l := p.Later; {
	case !l.Given():
		return 0, nil
	case l.DeliverAt != nil && l.DelayMS != nil:
		return 0, Errorf(BadRequest, "give either deliver_at or delay_ms")
	case p.HasTS:
		return 0, Errorf(BadRequest, "ts cannot be combined with deliver_at or delay_ms: the ts is when the event goes into the log")
	case l.DelayMS != nil && (*l.DelayMS < 0 || *l.DelayMS > MaxLaterMS):
		return 0, Errorf(BadRequest, "delay_ms is %d; 0 to %d are allowed, which is one year", *l.DelayMS, int64(MaxLaterMS))
	case l.DelayMS != nil:
		at += *l.DelayMS
	case *l.DeliverAt < 0 || *l.DeliverAt > now+MaxLaterMS:
		return 0, Errorf(BadRequest, "deliver_at is %d; times in milliseconds since the epoch are allowed up to %d, which is one year from now",
			*l.DeliverAt, now+MaxLaterMS)
	default:
		at = *l.DeliverAt
	}
	return at, nil
}
