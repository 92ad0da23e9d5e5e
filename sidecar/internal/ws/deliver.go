package ws

import (
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// Room reports whether the client reads fast enough to get more.
func (s *subscription) Room() bool { return s.conn.out.HasRoom() }

// Deliver puts deliveries into the send buffer, as many in one frame as the client asked for.
func (s *subscription) Deliver(ds []group.Delivery) {
	out := s.conn.out
	out.Cork()
	for rest := ds; len(rest) > 0; {
		n := s.frameOf(rest)
		s.conn.reply(func(dst []byte) []byte { return s.appendFrame(dst, rest[:n]) })
		rest = rest[n:]
	}
	if s.autoAck && s.member != nil {
		s.ackWhenWritten(ds)
	}
	out.Uncork()
}

// frameOf is how many of the deliveries go into one frame.
func (s *subscription) frameOf(ds []group.Delivery) int {
	most := s.conn.cfg.Limits.FrameBytes / 4 // bytes of content; JSON makes it longer
	n, size := 0, 0
	for n < min(len(ds), s.maxBatch) {
		if size += ds[n].Record.Size(); n > 0 && size > most {
			break
		}
		n++
	}
	return n
}

func (s *subscription) appendFrame(dst []byte, ds []group.Delivery) []byte {
	if len(ds) == 1 {
		return codec.AppendEvent(dst, s.Topic, s.Group, s.form, &ds[0].Record.Event, attempt(ds[0]), ds[0].AckTimeout.Milliseconds())
	}
	dst = codec.AppendEventsStart(dst, s.Topic, s.Group)
	for i := range ds {
		dst = codec.AppendEventsItem(dst, s.form, &ds[i].Record.Event, attempt(ds[i]), ds[i].AckTimeout.Milliseconds())
	}
	return codec.AppendEventsEnd(dst)
}

// attempt is 1 without a group, since no event is delivered again.
func attempt(d group.Delivery) int { return max(d.Attempt, 1) }

// ackWhenWritten acks deliveries once they are on the socket. Nobody waits for the ack. If it
// fails, the events are delivered again.
func (s *subscription) ackWhenWritten(ds []group.Delivery) {
	ids := make([]string, len(ds))
	for i := range ds {
		ids[i] = ds[i].Record.ID
	}
	s.conn.out.Then(func() { s.member.Ack(ids, func(error) {}) }, nil)
}
