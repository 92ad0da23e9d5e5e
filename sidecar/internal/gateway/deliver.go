package gateway

import (
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// deliveries writes what a subscription is sent: it is the group's sink.
type deliveries struct {
	subKey
	conn     *conn
	maxBatch int
	autoAck  bool
	member   *group.Member // nil without a group
}

func newDeliveries(c *conn, req *codec.Request) deliveries {
	d := deliveries{subKey: subKey{req.Topic, req.Group}, conn: c, maxBatch: 1, autoAck: req.Subscribe.AutoAck}
	if n := req.Subscribe.MaxBatch; n != nil {
		d.maxBatch = *n
	}
	return d
}

// Room reports whether the client reads fast enough to be sent more.
func (d *deliveries) Room() bool { return d.conn.out.hasRoom() }

// Deliver puts deliveries into the send buffer, as many in one frame as the client
// asked for.
func (d *deliveries) Deliver(ds []group.Delivery) {
	out := d.conn.out
	out.cork()
	for rest := ds; len(rest) > 0; {
		n := d.frameOf(rest)
		d.conn.reply(func(dst []byte) []byte { return d.appendFrame(dst, rest[:n]) })
		rest = rest[n:]
	}
	if d.autoAck && d.member != nil {
		d.ackWhenWritten(ds)
	}
	out.uncork()
}

// frameOf is how many of the deliveries go into one frame.
func (d *deliveries) frameOf(ds []group.Delivery) int {
	most := d.conn.cfg.Limits.FrameBytes / 4 // of content, which JSON makes longer
	n, size := 0, 0
	for n < min(len(ds), d.maxBatch) {
		if size += ds[n].Record.Size(); n > 0 && size > most {
			break
		}
		n++
	}
	return n
}

func (d *deliveries) appendFrame(dst []byte, ds []group.Delivery) []byte {
	if len(ds) == 1 {
		return codec.AppendEvent(dst, d.topic, d.group, &ds[0].Record.Event, attempt(ds[0]), ds[0].AckTimeout.Milliseconds())
	}
	dst = codec.AppendEventsStart(dst, d.topic, d.group)
	for i := range ds {
		dst = codec.AppendEventsItem(dst, &ds[i].Record.Event, attempt(ds[i]), ds[i].AckTimeout.Milliseconds())
	}
	return codec.AppendEventsEnd(dst)
}

// attempt is 1 without a group, since nothing is delivered again.
func attempt(d group.Delivery) int { return max(d.Attempt, 1) }

// ackWhenWritten acks deliveries once they are on the socket. Nobody waits for
// the ack: where it fails, they come again.
func (d *deliveries) ackWhenWritten(ds []group.Delivery) {
	ids := make([]string, len(ds))
	for i := range ds {
		ids[i] = ds[i].Record.ID
	}
	d.conn.out.whenWritten(func() { d.member.Ack(ids, func(error) {}) })
}
