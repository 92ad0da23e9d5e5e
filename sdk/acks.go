package sluice

import (
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// acks is an ACK that is the last frame of the queue. Further acks of its subscription join it: the sidecar settles,
// saves and answers them together. The connection's lock guards it, and once it is written only the answer uses it.
type acks struct {
	sub   *ConnSubscription
	ids   []string
	calls []ackCall
	alone bool // it may be refused for its ids
}

// ackCall is one call of AckAsync: the ids from those of the call before it up to an index.
type ackCall struct {
	upTo int
	done func(error) // may be nil
}

// maxAckIDs bounds the ids of calls that share a frame.
const maxAckIDs = 128

func newAcks(s *ConnSubscription, ids []string) *acks {
	return &acks{sub: s, ids: make([]string, 0, 8), calls: make([]ackCall, 0, 8), alone: refusable(ids)}
}

// takes reports whether ids may join. An id that the sidecar refuses would have it refuse the others, too.
func (a *acks) takes(s *ConnSubscription, ids []string) bool {
	return a != nil && a.sub == s && !a.alone && len(a.ids)+len(ids) <= maxAckIDs && !refusable(ids)
}

// refusable reports whether the sidecar may refuse an ACK for its ids.
func refusable(ids []string) bool {
	return len(ids) == 0 || slices.ContainsFunc(ids, func(id string) bool { return codec.CheckID(id) != nil })
}

func (a *acks) add(ids []string, done func(error)) {
	a.ids = append(a.ids, ids...)
	a.calls = append(a.calls, ackCall{len(a.ids), done})
}

// answered gives each call its answer. A stale_lease is that of the calls whose ids it names.
func (a *acks) answered(_ *codec.Reply, err error) {
	var lost []string
	if refusal, ok := asType[*wire.Error](err); ok {
		lost = refusal.IDs
	}
	from := 0
	for _, call := range a.calls {
		ids, outcome := a.ids[from:call.upTo], err
		from = call.upTo
		if len(lost) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(lost, id) }) {
			outcome = nil
		}
		if call.done != nil {
			call.done(outcome)
		}
	}
}
