package gateway

import (
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// maxSettleBody is more than the most leases that one request may name.
const maxSettleBody = 4 << 20

// ackLeases answers once the group's progress is durable.
func (g *Gateway) ackLeases(w http.ResponseWriter, r *http.Request) {
	g.settleLeases(w, r, wire.OpAck, func(topic, name string, leases []group.Lease, _ codec.Settlement, done func(error)) []bool {
		return g.cfg.Groups.AckLeases(topic, name, leases, done)
	})
}

func (g *Gateway) nackLeases(w http.ResponseWriter, r *http.Request) {
	g.settleLeases(w, r, wire.OpNack, func(topic, name string, leases []group.Lease, t codec.Settlement, done func(error)) []bool {
		return g.cfg.Groups.NackLeases(topic, name, leases, t.Nack, done)
	})
}

func (g *Gateway) extendLeases(w http.ResponseWriter, r *http.Request) {
	g.settleLeases(w, r, wire.OpModAck, func(topic, name string, leases []group.Lease, t codec.Settlement, done func(error)) []bool {
		done(nil)
		return g.cfg.Groups.ExtendLeases(topic, name, leases, time.Duration(*t.ExtendMS)*time.Millisecond)
	})
}

// settlement does something to what is in flight under leases, tells which were
// stale, and calls done once that is durable.
type settlement func(topic, name string, leases []group.Lease, t codec.Settlement, done func(error)) (stale []bool)

func (g *Gateway) settleLeases(w http.ResponseWriter, r *http.Request, op string, settle settlement) {
	results, err := g.settleRequest(w, r, op, settle)
	if err != nil {
		httpapi.WriteError(w, r, refusal(err), g.cfg.Logger)
		return
	}
	writeJSON(w, http.StatusOK, codec.AppendSettled(nil, results))
}

func (g *Gateway) settleRequest(w http.ResponseWriter, r *http.Request, op string, settle settlement) ([]*wire.Error, error) {
	topic, name, err := groupOf(r)
	if err != nil {
		return nil, err
	}
	if g.refusing() {
		return nil, errStopping()
	}
	if err := g.may(r, access.Subscribe, topic, name); err != nil {
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
