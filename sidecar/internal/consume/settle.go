package consume

import (
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// maxSettleBody is larger than a body with the most leases that one request may name.
const maxSettleBody = 4 << 20

// settleLeases handles ack, nack and modack. It answers an ack or a nack once the group's progress
// is durable.
func (c *Consumers) settleLeases(op string) session.Handler {
	return func(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
		if err := mayJoin(caller, r); err != nil {
			return err
		}
		content, bad := c.cfg.Bodies.Read(caller.Share(), w, r.Request, maxSettleBody)
		if bad != nil {
			return bad
		}
		t, bad := codec.DecodeSettlement(op, content)
		if bad != nil {
			return bad
		}
		topic, name := r.PathValue("topic"), r.PathValue("group")
		leases, indexes, results, bad := c.readLeases(topic, name, t.Leases)
		if bad != nil {
			return bad
		}
		type outcome struct {
			stale []int
			err   error
		}
		settled := make(chan outcome, 1)
		done := func(absent, lost []int, err error) { settled <- outcome{append(absent, lost...), err} }
		switch op {
		case wire.OpAck:
			c.cfg.Groups.AckLeases(topic, name, leases, done)
		case wire.OpNack:
			c.cfg.Groups.NackLeases(topic, name, leases, t.Nack, done)
		case wire.OpModAck:
			done(c.cfg.Groups.ExtendLeases(topic, name, leases, time.Duration(*t.ExtendMS)*time.Millisecond), nil, nil)
		}
		select {
		case o := <-settled:
			for _, i := range o.stale {
				results[indexes[i]] = wire.Errorf(wire.StaleLease, "the event is not in flight under this lease any more: "+
					"it was settled, or given to be delivered again")
			}
			if o.err == nil {
				httpapi.WriteJSON(w, http.StatusOK, codec.AppendSettled(nil, results))
			}
			return o.err
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
}

// readLeases reads the leases of a request. indexes has the index of each in the request. Leases of
// other processes are left out, and have their result already.
func (c *Consumers) readLeases(topic, name string, tokens []string) (
	leases []group.Lease, indexes []int, results []*wire.Error, bad *wire.Error,
) {
	results = make([]*wire.Error, len(tokens))
	for i, token := range tokens {
		d, node, ours, ok := c.leases.readLease(topic, name, token)
		switch {
		case !ok:
			return nil, nil, nil, wire.Errorf(wire.BadRequest, "leases[%d] is %q, which is no lease of group %s on topic %s",
				i, refusal.Shorten(token), refusal.Shorten(name), refusal.Shorten(topic))
		case ours:
			leases, indexes = append(leases, d), append(indexes, i)
		case node == c.cfg.NodeID:
			results[i] = wire.Errorf(wire.StaleLease, "this sidecar has been started again since it gave the lease")
		default:
			results[i] = wire.Errorf(wire.StaleLease, "the lease was given by sidecar %q: it is settled there", refusal.Shorten(node))
		}
	}
	return leases, indexes, results, nil
}
