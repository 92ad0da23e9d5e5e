package sluice

import (
	"errors"
	"maps"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// lonePlace is the position of a subscription without a group, which no sidecar keeps.
type lonePlace struct {
	joined int64          // when it subscribed first, in ms
	first  int64          // ts of the first event; 0: none came
	last   int64          // the highest ts, but not beyond the time of its delivery
	latest int64          // the highest ts
	seen   map[int]uint64 // the highest seq by partition
	// places are the positions to go on behind: those that the sidecar gave at the start, moved on
	// by the events that came. nil: not known.
	places map[int]uint64
	lost   time.Time // when it lost its connection; zero: it has one, or had none yet
}

// longestAway is for how long a subscription with [option.EndOnGap] may have had no connection:
// well below the day for which a compacted topic keeps deletions of keys.
const longestAway = 12 * time.Hour

// away is for how long it has had no connection.
func (l *lonePlace) away() time.Duration {
	if l.lost.IsZero() {
		return 0
	}
	return time.Since(l.lost)
}

// errMisplaced makes a subscription try again, from another place.
var errMisplaced = errors.New("the position no longer exists")

// started notes where a subscription has started.
func (l *lonePlace) started(positions map[int]uint64) {
	if l.places != nil || positions == nil {
		return
	}
	l.places = make(map[int]uint64, len(positions))
	for p, seq := range positions {
		l.places[p] = max(seq, l.seen[p])
	}
}

// misplaced reports whether a subscription was refused because of the positions that it wanted to
// go on behind: retention has passed them, or the log is another one. The next try names a time
// instead.
func (l *lonePlace) misplaced(err error) bool {
	refusal, ok := asType[*wire.Error](err)
	if !ok || l.places == nil || refusal.Code != wire.OutOfRange && refusal.Code != wire.BadRequest {
		return false
	}
	l.places = nil
	return true
}

// loneSlack is by how much the ts of an event may be lower than that of an earlier event, without
// the event being missed by a subscription that connects again.
const loneSlack = time.Minute

// pass notes an event, and reports whether it is new. An event whose seq is not above its
// partition's highest, but whose ts is above all earlier ones, is new, too: the log is another one,
// whose seqs started over.
func (l *lonePlace) pass(e *wire.Event, now time.Time) bool {
	if l.seen == nil {
		l.seen = map[int]uint64{}
	}
	if e.Seq > 0 && e.Seq <= l.seen[e.Partition] {
		if e.TS <= l.latest {
			return false
		}
		clear(l.seen)
	}
	l.seen[e.Partition] = e.Seq
	if l.places != nil {
		l.places[e.Partition] = e.Seq
	}
	if l.first == 0 {
		l.first = e.TS
	}
	l.latest = max(l.latest, e.TS)
	l.last = max(l.last, min(e.TS, now.UnixMilli()))
	return true
}

// from says where to subscribe: at first as the caller asked, and then behind the positions, or,
// where these are not known, a while before the last event. pass drops the events that come twice
// because of that.
func (l *lonePlace) from(asked wire.SubscribeOptions, group string) wire.SubscribeOptions {
	if group != "" {
		return asked
	}
	if l.joined == 0 {
		l.joined = time.Now().UnixMilli()
		return asked
	}
	if l.places != nil {
		asked.From, asked.TS, asked.AfterID, asked.Positions = wire.FromPositions, nil, "", maps.Clone(l.places)
		return asked
	}
	latest := asked.From == "" || asked.From == wire.FromLatest
	if l.first == 0 && !latest {
		return asked
	}
	ts := l.last - loneSlack.Milliseconds()
	switch {
	case latest:
		ts = max(ts, l.joined)
	case asked.From == wire.FromTS:
		ts = max(ts, *asked.TS)
	case asked.From == wire.FromAfterID:
		ts = max(ts, l.first)
	}
	ts = max(ts, 0)
	asked.From, asked.TS, asked.AfterID = wire.FromTS, &ts, ""
	return asked
}
