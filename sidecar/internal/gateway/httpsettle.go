package gateway

import (
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// maxSettleBody is more than the most leases that one request may name.
const maxSettleBody = 4 << 20

// settlement does something to what is in flight under leases, tells which were
// stale, and calls done once that is durable.
type settlement func(topic, name string, leases []group.Lease, t codec.Settlement, done func(error)) (stale []bool)

func (g *Gateway) ackLeases(topic, name string, leases []group.Lease, _ codec.Settlement, done func(error)) []bool {
	return g.cfg.Groups.AckLeases(topic, name, leases, done)
}

func (g *Gateway) nackLeases(topic, name string, leases []group.Lease, t codec.Settlement, done func(error)) []bool {
	return g.cfg.Groups.NackLeases(topic, name, leases, t.Nack, done)
}

func (g *Gateway) extendLeases(topic, name string, leases []group.Lease, t codec.Settlement, done func(error)) []bool {
	done(nil)
	return g.cfg.Groups.ExtendLeases(topic, name, leases, time.Duration(*t.ExtendMS)*time.Millisecond)
}

// settleLeases answers once the group's progress is durable.
func (g *Gateway) settleLeases(op string, settle settlement) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		results, err := g.settleRequest(w, r, op, settle)
		if err == nil {
			writeJSON(w, http.StatusOK, codec.AppendSettled(nil, results))
		}
		return err
	}
}

func (g *Gateway) settleRequest(w http.ResponseWriter, r *http.Request, op string, settle settlement) ([]*wire.Error, error) {
	topic, name, err := g.mayJoin(r)
	if err != nil {
		return nil, err
	}
	content, bad := g.readAtMost(w, r, maxSettleBody)
	if bad != nil {
		return nil, bad
	}
	t, bad := codec.DecodeSettlement(op, content)
	if bad != nil {
		return nil, bad
	}
	leases, at, results, bad := g.readLeases(topic, name, t.Leases)
	if bad != nil {
		return nil, bad
	}
	durable := make(chan error, 1)
	for i, stale := range settle(topic, name, leases, t, func(err error) { durable <- err }) {
		if stale {
			results[at[i]] = wire.Errorf(wire.StaleLease, "the event is not in flight under this lease any more: it was settled, or given to be delivered again")
		}
	}
	select {
	case err = <-durable:
		return results, err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// readLeases reads the leases of a request. at says which of the request's each
// one is; the others, which this process did not give, have their result.
func (g *Gateway) readLeases(topic, name string, tokens []string) (leases []group.Lease, at []int, results []*wire.Error, bad *wire.Error) {
	results = make([]*wire.Error, len(tokens))
	for i, token := range tokens {
		d, node, ours, ok := g.leases.readLease(topic, name, token)
		switch {
		case !ok:
			return nil, nil, nil, wire.Errorf(wire.BadRequest, "leases[%d] is %q, which is no lease of group %s on topic %s", i, shorten(token), shorten(name), shorten(topic))
		case ours:
			leases, at = append(leases, d), append(at, i)
		case node == g.cfg.NodeID:
			results[i] = wire.Errorf(wire.StaleLease, "this sidecar has been started again since it gave the lease")
		default:
			results[i] = wire.Errorf(wire.StaleLease, "the lease was given by sidecar %q: it is settled there", shorten(node))
		}
	}
	return leases, at, results, nil
}
