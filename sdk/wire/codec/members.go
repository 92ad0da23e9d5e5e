package codec

import (
	"math/bits"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

// A set of members has a bit for each: bit i of frameMembers[i], or of optsMembers[i].

// frameMembers are the members of a frame beside op and corr.
var frameMembers = []string{
	"topic", "group", "token", "id", "ids", "extend_ms", "reason", "delay_ms", "dead_letter", "hold",
	"events", "payload", "payload_base64", "opts",
}

const (
	inTopic = 1 << iota
	inGroup
	inToken
	inID
	inIDs
	inExtendMS
	inReason
	inDelayMS
	inDeadLetter
	inHold
	inEvents
	inPayload
	inPayload64
	inOpts

	inSubscription = inTopic | inGroup
	inAck          = inSubscription | inID | inIDs
	inNack         = inAck | inReason | inDelayMS | inDeadLetter | inHold
	inModAck       = inAck | inExtendMS
	inLine         = inPayload | inPayload64 | inOpts // of a publish of lines
	inItem         = inTopic | inLine                 // of a batch in a frame
	inPublish      = inItem | inEvents
)

// optsMembers are the members of opts: those of a publish, ts, and those of a subscription.
var optsMembers = []string{
	"id", "key", "headers", "tags", "caused_by", "sid", "ttl_ms", "deliver_at", "delay_ms",
	"ts",
	"from", "afterId", "positions", "filter", "maxInflight", "ackTimeoutMs", "maxAttempts", "ordered", "exactlyOnce", "dedupeTtlMs", "autoAck",
	"format", "maxBatch", "rebalance",
}

const (
	inHeaders       = 1 << 2
	inPublishOpts   = 1<<10 - 1
	inPullOpts      = 1<<22 - 1<<9
	inSubscribeOpts = 1<<24 - 1<<9
)

func (f *frame) given() uint {
	return given(&f.topic, &f.group, &f.token, &f.id, &f.ids, &f.extendMS, &f.nack.reason, &f.nack.delayMS, &f.nack.deadLetter, &f.nack.hold,
		&f.events, &f.item.payload, &f.item.payload64, &f.item.optsValue)
}

func (it *item) given() uint {
	set := given(&it.payload, &it.payload64, &it.optsValue) * inPayload
	if it.topic.given() {
		set |= inTopic
	}
	return set
}

func (o *options) given() uint {
	return given(&o.id, &o.key, &o.headers, &o.tags, &o.causedBy, &o.sid, &o.ttlMS, &o.deliverAt, &o.delayMS, &o.ts,
		&o.from, &o.afterID, &o.positions, &o.filter, &o.maxInflight, &o.ackTimeoutMS, &o.maxAttempts, &o.ordered, &o.exactlyOnce,
		&o.dedupeTTLMS, &o.autoAck, &o.format, &o.maxBatch, &o.rebalance)
}

// given is the set of the values that are given, by their places.
func given(values ...*value) (set uint) {
	for i, v := range values {
		if v.given() {
			set |= 1 << i
		}
	}
	return set
}

// checkMembers refuses a member that is in no list, or not in the set allowed.
func checkMembers(unknown *string, given, allowed uint, names []string) *wire.Error {
	if unknown == nil && given&^allowed == 0 {
		return nil
	}
	if unknown == nil {
		unknown = &names[bits.TrailingZeros(given&^allowed)]
	}
	var known []string
	for i, name := range names {
		if allowed&(1<<i) != 0 {
			known = append(known, name)
		}
	}
	return unknownMember(*unknown, known)
}

func unknownMember(name string, known []string) *wire.Error {
	return wire.Errorf(wire.BadRequest, "member %s is not known here%s", shown(name), nearest.Known(name, known))
}
