package admit

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
	"github.com/sluice-bus/sluice/sidecar/internal/policy"
)

// toll is the tokens that one call of Publish took: from the connection's
// bucket first, then two charges for each topic (events and bytes), in the
// order of their names, which is the order of locking for all calls.
type toll struct {
	charges []limit.Charge
	topics  []string // charges[1+2*i] and the next are those of topics[i]

	// Most calls name one topic.
	few   [3]limit.Charge
	topic [1]string
}

// Places of a topic's two charges.
const (
	eventsCharge = 1
	bytesCharge  = 2
)

// at is where the charges of a topic begin.
func (t *toll) at(topic string) int {
	if len(t.topics) == 1 {
		return 0
	}
	i, _ := slices.BinarySearch(t.topics, topic)
	return 2 * i
}

// fill counts what the items cost.
func (t *toll) fill(p *Publisher, c *Connection, policies *policy.Snapshot, items []wire.PublishItem, now time.Time) {
	t.topics = t.topic[:0]
	for i := range items {
		if name := items[i].Event.Topic; items[i].Err == nil && !slices.Contains(t.topics, name) {
			t.topics = append(t.topics, name)
		}
	}
	slices.SortFunc(t.topics, strings.Compare)
	c.bucket.Retune(connectionRate(policies), now)
	t.charges = append(t.few[:0], limit.Charge{Bucket: c.bucket})
	for _, name := range t.topics {
		rates := policies.Topic(name).Publish
		b := p.buckets.Topic(name, limit.TopicRates{
			Events:         limit.Rate{PerSecond: rates.Rate, Burst: rates.Burst},
			BytesPerSecond: rates.BytesPerSecond,
		}, now)
		t.charges = append(t.charges, limit.Charge{Bucket: b.Events}, limit.Charge{Bucket: b.Bytes})
	}
	for i := range items {
		if items[i].Err != nil {
			continue
		}
		at := t.at(items[i].Event.Topic)
		t.charges[0].N++
		t.charges[at+eventsCharge].N++
		t.charges[at+bytesCharge].N += len(items[i].Event.Payload)
	}
}

// refund gives back what one event took. The rest of the toll stays taken.
func (t *toll) refund(topic string, payload int) {
	at := t.at(topic)
	one := [3]limit.Charge{t.charges[0], t.charges[at+eventsCharge], t.charges[at+bytesCharge]}
	one[0].N, one[1].N, one[2].N = 1, 1, payload
	limit.RefundAll(one[:], time.Now())
}

// charge takes the tokens of all items that are not refused already, or of
// none. Where the policies of all topics say wait, it waits for up to the
// shortest of their max_wait.
func (p *Publisher) charge(ctx context.Context, c *Connection, policies *policy.Snapshot, items []wire.PublishItem, t *toll) *wire.Error {
	began := time.Now()
	for now := began; ; now = time.Now() {
		*t = toll{}
		t.fill(p, c, policies, items, now)
		v := limit.TakeAll(t.charges, now)
		if v.OK {
			return nil
		}
		if v.OverBurst {
			return t.overBurst(v)
		}
		if now.Add(v.Wait).Sub(began) > t.patience(policies) || !pause(ctx, v.Wait) {
			return t.empty(v)
		}
	}
}

// patience is how long the call may wait for tokens.
func (t *toll) patience(policies *policy.Snapshot) time.Duration {
	least := time.Duration(-1)
	for _, name := range t.topics {
		pub := policies.Topic(name).Publish
		if pub.OnLimit != policy.LimitWait {
			return 0
		}
		if least < 0 || pub.MaxWait < least {
			least = pub.MaxWait
		}
	}
	return max(least, 0)
}

// pause waits; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// whose names the bucket of a refused charge: what it counts, and its scope.
func (t *toll) whose(refused int) (name, unit, scope string) {
	if refused == 0 {
		return "this connection", "events", "connection"
	}
	name = "topic " + t.topics[(refused-1)/2]
	if refused%2 == 0 {
		return name, "bytes", "topic"
	}
	return name, "events", "topic"
}

func (t *toll) overBurst(v limit.Verdict) *wire.Error {
	name, unit, _ := t.whose(v.Refused)
	return wire.Errorf(wire.BadRequest, "a publish of %d %s is larger than the burst of %s, which is %d: send smaller batches",
		t.charges[v.Refused].N, unit, name, v.Burst)
}

func (t *toll) empty(v limit.Verdict) *wire.Error {
	name, unit, scope := t.whose(v.Refused)
	e := wire.Errorf(wire.RateLimited, "the publish rate of %s (%s) is used up; %d tokens are needed", name, unit, t.charges[v.Refused].N)
	e.RetryAfter, e.Scope = v.Wait, scope
	return e
}
