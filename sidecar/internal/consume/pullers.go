package consume

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// pullers are the members that serve pulls. The first pull with its opts makes such a member. The
// member ends after some time without pulls and events in flight.
type pullers struct {
	cfg *Config

	mu    sync.Mutex
	ended *wire.Error // no new pull is admitted
	all   map[pullerKey]*puller
}

// keyOf is the key of the puller for a pull, and its opts. The start does not matter, since a group
// begins once. Opts about deliveries to a connection do not apply to pulls.
func keyOf(topic, name string, o wire.SubscribeOptions) (pullerKey, wire.SubscribeOptions) {
	o.MaxBatch, o.AutoAck, o.Rebalance = nil, false, false
	same := o
	same.From, same.TS, same.AfterID, same.Positions = "", nil, "", nil
	if f := o.Filter; f != nil {
		sorted := *f
		sorted.Headers = slices.SortedFunc(slices.Values(f.Headers), func(a, b wire.Header) int { return strings.Compare(a.Name, b.Name) })
		same.Filter = &sorted
	}
	return pullerKey{topic, name, string(codec.AppendSubscribe(nil, "", "", "", &same))}, o
}

// enter finds or makes the puller of a request, and takes the request's place among the caller's pulls. The puller
// stays until exit.
func (x *pullers) enter(ctx context.Context, caller *session.Session, topic, name string, o wire.SubscribeOptions) (*puller, error) {
	key, o := keyOf(topic, name, o)
	p, err := x.find(caller.Share(), key)
	if err != nil {
		return nil, err
	}
	// One request subscribes, and the others wait. If it fails, the next request tries, since the
	// failure may concern only the first request.
	if err = p.joining.Acquire(ctx, 1); err == nil {
		if p.member == nil {
			err = x.subscribe(caller.Attribute(ctx), p, o)
		}
		p.joining.Release(1)
	}
	if err != nil {
		x.exit(p)
		caller.Share().Leave(budget.Pulls)
		return nil, err
	}
	return p, nil
}

// find finds the puller and counts one more request.
func (x *pullers) find(share *budget.Share, key pullerKey) (*puller, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended != nil {
		return nil, x.ended
	}
	if err := share.Enter(budget.Pulls); err != nil {
		return nil, err
	}
	p := x.all[key]
	if p == nil {
		if err := x.enterPuller(share); err != nil {
			share.Leave(budget.Pulls)
			return nil, err
		}
		p = &puller{key: key, groups: x.cfg.Groups, share: share, joining: semaphore.NewWeighted(1)}
		p.idle = time.AfterFunc(time.Hour, func() { x.retire(p) })
		p.idle.Stop()
		x.all[key] = p
	}
	p.users++
	return p, nil
}

// enterPuller takes a place for one more puller, if need be that of an unused one: of the same client,
// or of any.
func (x *pullers) enterPuller(share *budget.Share) error {
	err := share.Enter(budget.Pullers)
	if err != nil && (x.makeRoom(share) || x.makeRoom(nil)) {
		err = share.Enter(budget.Pullers)
	}
	return err
}

// subscribe makes the puller's member.
func (x *pullers) subscribe(ctx context.Context, p *puller, o wire.SubscribeOptions) error {
	m, err := x.cfg.Groups.Subscribe(ctx, group.Subscription{
		Topic: p.key.topic, Group: p.key.group, Options: o,
		Sink: p, Pacer: unpaced{}, MemberID: x.cfg.NodeID + "/pull", Memory: p.share,
	})
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended != nil {
		m.Close(group.Unsubscribed)
		return x.ended
	}
	p.member = m
	m.Start()
	return nil
}

// unpaced is the delivery bucket of a puller: the requests have already taken tokens of their
// connections.
type unpaced struct{}

func (unpaced) Take(time.Time) (time.Duration, bool) { return 0, true }

// exit counts one request less.
func (x *pullers) exit(p *puller) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p.users--
	switch {
	case p.users > 0 || p.gone:
	case p.member == nil: // no request could subscribe
		x.forget(p)
	default:
		p.idle.Reset(x.cfg.Bounds.PullerIdle)
	}
}

// retire ends a puller that was unused for some time. Events in flight keep it, since an ack may
// still arrive.
func (x *pullers) retire(p *puller) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case p.gone || p.users > 0:
	case p.member.Inflight() > 0:
		p.idle.Reset(x.cfg.Bounds.PullerIdle)
	default:
		x.drop(p)
	}
}

// makeRoom ends an unused puller before its time: that a client has made, or with nil anybody.
func (x *pullers) makeRoom(share *budget.Share) bool {
	for _, p := range x.all {
		if (share == nil || p.share == share) && p.users == 0 && p.member.Inflight() == 0 {
			x.drop(p)
			return true
		}
	}
	return false
}

// leave ends the unused pullers of a topic, or of one of its groups, so that they do not keep a
// group from being deleted.
func (x *pullers) leave(topic, group string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, p := range x.all {
		if key.topic == topic && (group == "" || key.group == group) && p.users == 0 && p.member.Inflight() == 0 {
			x.drop(p)
		}
	}
}

// drop forgets a puller that has nothing in flight.
func (x *pullers) drop(p *puller) {
	p.gone = true
	p.idle.Stop()
	x.forget(p)
	p.member.Close(group.Unsubscribed)
}

func (x *pullers) forget(p *puller) {
	delete(x.all, p.key)
	p.share.Leave(budget.Pullers)
}

// count is how many pullers there are.
func (x *pullers) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.all)
}

// end refuses pulls from now on, answers the waiting ones, and gives back the events in flight.
func (x *pullers) end(why *wire.Error) {
	x.mu.Lock()
	x.ended = why
	var ending []*puller
	for _, p := range x.all {
		if p.member != nil { // else the request that makes it sees that the pullers have ended
			p.gone = true
			p.idle.Stop()
			ending = append(ending, p)
		}
	}
	x.all = nil
	x.mu.Unlock()
	for _, p := range ending {
		p.end(why)
	}
}
