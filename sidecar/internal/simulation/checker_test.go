package simulation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
)

// rule is one thing that every history has to obey, whatever went wrong.
type rule struct {
	name    string
	promise string // of DESIGN.md, section 1
	check   func(v *view, broken func(format string, args ...any))
}

var rules = []rule{
	{"lost", "1: a publish that was answered OK is never lost", checkLost},
	{"unstored", "1: what is delivered or read is in the log for good", checkUnstored},
	{"order", "2: what was answered before another publish began is below it in its partition", checkOrder},
	{"overtaken", "2: publishes of one key through one sidecar are logged in the order in which they were sent", checkOvertaken},
	{"look-back", "2: a reader never has to look back", checkReads},
	{"once", "3: a (topic, id) is stored once, and a seq is given once", checkOnce},
	{"conflict", "3: an id that is taken by other content is refused, and no other is", checkConflicts},
	{"silent-drop", "4: a group gets every event until it acks it, or it is a dead letter", checkFates},
	{"skipped", "4: nor at a seq whose event was taken back by a change of primary", checkSkipped},
	{"false-death", "4: a dead letter has used up its attempts, and was not acked", checkDeaths},
	{"attempts", "4: attempts do not fall, what is given back counts none, and what dies with its sidecar one", checkAttempts},
	{"key-order", "5: one key reaches a group in log order", checkKeyOrder},
	{"settled-again", "5: an event whose ack was answered OK does not come again", checkSettledAgain},
	{"two-leases", "5: at most one live lease per group and event", checkLeases},
	{"window", "6: in flight is never more than the window", checkWindows},
	{"redriven", "4: a dead letter that is redriven comes to its group once, and to no other", checkRedriven},
	{"outbox-lost", "1: what was inserted into an outbox is published", checkOutboxLost},
	{"outbox-order", "2: what was inserted into an outbox is logged in its order, key by key", checkOutboxOrder},
	{"captured", "each change of a captured collection is published once, in the order of its document", checkCaptured},
	{"scheduled", "a scheduled event does not come early, nor once it was cancelled", checkScheduled},
	{"removed", "an event is gone only after its retention, or once a later one of its key supersedes it", checkRemoved},
	{"invented", "what is in the log was published", checkInvented},
	{"spooled", "8: while the store is there, nothing is spooled", checkSpooled},
	{"stuck", "8: once all faults are mended, publishes are answered and groups come to their ends", checkStuck},
}

// violation is a rule that a history breaks, at one place.
type violation struct {
	Rule string
	Text string
}

func (v violation) String() string { return v.Rule + ": " + v.Text }

// maxViolations bounds what is told of one rule.
const maxViolations = 5

// check applies all rules.
func (h *history) check() (all []violation) {
	v := newView(h)
	for _, r := range rules {
		n := 0
		r.check(v, func(format string, args ...any) {
			if n++; n <= maxViolations {
				all = append(all, violation{r.name, fmt.Sprintf(format, args...)})
			}
		})
	}
	return all
}

// view is a history with what several rules look for.
type view struct {
	*history
	byID  map[[2]string][]*stored   // (topic, id)
	bySeq map[place]*stored         // one of them where there are several
	tries map[[2]string][]*publish  // (topic, id), in the order in which they began
	byEvt map[[3]string][]*delivery // (topic, group, id), in the order in which they came
	dead  map[[3]string][]*stored   // (topic, group, id)
	died  map[[3]string]bool        // by (topic, group, id): redriven or discarded
	parts map[part][]*stored        // by seq
}

type part struct {
	topic     string
	partition int
}

type place struct {
	part
	seq uint64
}

func newView(h *history) *view {
	v := &view{
		history: h, byID: map[[2]string][]*stored{}, bySeq: map[place]*stored{}, tries: map[[2]string][]*publish{},
		byEvt: map[[3]string][]*delivery{}, dead: map[[3]string][]*stored{}, died: map[[3]string]bool{}, parts: map[part][]*stored{},
	}
	for i := range h.Stored {
		s := &h.Stored[i]
		at := part{s.Topic, s.Partition}
		v.byID[[2]string{s.Topic, s.ID}] = append(v.byID[[2]string{s.Topic, s.ID}], s)
		v.bySeq[place{at, s.Seq}] = s
		v.parts[at] = append(v.parts[at], s)
		if topic, is := deadLettersOf(s.Topic); is {
			k := [3]string{topic, s.DeadGroup, s.DeadID}
			v.dead[k] = append(v.dead[k], s)
		}
	}
	for _, events := range v.parts {
		slices.SortStableFunc(events, func(a, b *stored) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	for _, p := range h.Publishes {
		if p.ID != "" {
			v.tries[[2]string{p.Topic, p.ID}] = append(v.tries[[2]string{p.Topic, p.ID}], p)
		}
	}
	for _, call := range h.Redrives {
		for _, id := range call.IDs {
			v.died[[3]string{call.Topic, call.Group, id}] = true
		}
	}
	for k, letters := range v.dead { // one that has died again is there under its next letter
		over := map[string]bool{}
		for _, l := range letters {
			over[eventlog.LetterBefore(l.ID)] = true
		}
		v.dead[k] = slices.DeleteFunc(letters, func(l *stored) bool { return over[l.ID] })
	}
	for _, d := range h.Deliveries {
		k := [3]string{d.Topic, d.Group, d.ID}
		v.byEvt[k] = append(v.byEvt[k], d)
	}
	return v
}

// find is where an id is stored; nil: nowhere.
func (v *view) find(topic, id string) *stored {
	if s := v.byID[[2]string{topic, id}]; len(s) > 0 {
		return s[0]
	}
	return nil
}

// lasting reports whether the topic's acknowledged writes survive a change of primary.
func (v *view) lasting(topic string) bool { return v.topics[topic].WriteConcern == "" }

func checkLost(v *view, broken func(string, ...any)) {
	for _, p := range v.Publishes {
		if !p.ok() || !v.lasting(p.Topic) {
			continue
		}
		s := v.find(p.Topic, p.ID)
		switch buried := len(v.dead[[3]string{p.Topic, "", p.ID}]) > 0; {
		case s == nil && p.Spooled && buried: // the store did not take it
		case p.DeliverAt != 0 && (s == nil || s.Content != p.Content) && v.mayBeCancelled(p.Topic, p.ID):
		case s == nil:
			broken("%s/%s was answered OK through %s and is not in the log", p.Topic, p.ID, p.Sidecar)
		case s.Content != p.Content && p.Spooled && buried: // an event that was in the log before had its id
		case s.Content != p.Content:
			broken("%s/%s was answered OK through %s, and the log has other content", p.Topic, p.ID, p.Sidecar)
		case p.DeliverAt != 0: // it had no place then
		case !p.Spooled && (s.Partition != p.Partition || s.Seq != p.Seq):
			broken("%s/%s was said to be at %d/%d and is at %d/%d", p.Topic, p.ID, p.Partition, p.Seq, s.Partition, s.Seq)
		}
	}
}

func checkUnstored(v *view, broken func(string, ...any)) {
	missing := func(who, topic, id string, partition int, seq uint64) {
		if s := v.bySeq[place{part{topic, partition}, seq}]; s == nil || s.ID != id {
			broken("%s got %s/%s at %d/%d, where the log does not have it", who, topic, id, partition, seq)
		}
	}
	for _, d := range v.Deliveries {
		if v.lasting(d.Topic) {
			missing(d.Consumer, d.Topic, d.ID, d.Partition, d.Seq)
		}
	}
	for _, r := range v.Reads {
		if v.lasting(r.Topic) {
			missing(r.Reader, r.Topic, r.ID, r.Partition, r.Seq)
		}
	}
}

// later reports whether a publish is of a scheduled event.
func later(p *publish) bool { return p.DeliverAt != 0 }

// checkOrder goes through all events in the order of their first attempts. The highest seq that had
// been answered before an event's first attempt is below the event's own.
func checkOrder(v *view, broken func(string, ...any)) {
	type mark struct {
		order int
		known *publish // answered, or
		event *stored  // first attempted
	}
	marks := map[part][]mark{}
	for _, p := range v.Publishes {
		if p.ok() && !p.Spooled && p.DeliverAt == 0 && v.lasting(p.Topic) {
			at := part{p.Topic, p.Partition}
			marks[at] = append(marks[at], mark{order: p.Ended.Order, known: p})
		}
	}
	for id, tries := range v.tries {
		if s := v.find(id[0], id[1]); s != nil && v.lasting(id[0]) && !slices.ContainsFunc(tries, later) {
			at := part{s.Topic, s.Partition}
			marks[at] = append(marks[at], mark{order: tries[0].Began.Order, event: s})
		}
	}
	for at, ms := range marks {
		slices.SortFunc(ms, func(a, b mark) int { return cmp.Compare(a.order, b.order) })
		var highest *publish
		for _, m := range ms {
			switch {
			case m.known != nil && (highest == nil || m.known.Seq > highest.Seq):
				highest = m.known
			case m.event != nil && highest != nil && m.event.Seq < highest.Seq:
				broken("%s/%d: %s, first published after %s was answered with seq %d, is at %d",
					at.topic, at.partition, m.event.ID, highest.ID, highest.Seq, m.event.Seq)
			}
		}
	}
}

// checkOvertaken looks at events that were published through one sidecar alone. The events of a key
// are in the log in the order of their answers, whichever way they took, the spool included.
func checkOvertaken(v *view, broken func(string, ...any)) {
	type route struct{ sidecar, topic, key string }
	routes := map[route][]*publish{}
	for _, tries := range v.tries {
		p := tries[0]
		if p.Key != "" && !slices.ContainsFunc(tries,
			func(q *publish) bool { return q.Sidecar != p.Sidecar || q.Content != p.Content || later(q) }) {
			k := route{p.Sidecar, p.Topic, p.Key}
			routes[k] = append(routes[k], p)
		}
	}
	for k, ps := range routes {
		if !v.lasting(k.topic) {
			continue
		}
		slices.SortFunc(ps, func(a, b *publish) int { return cmp.Compare(a.Began.Order, b.Began.Order) })
		answered := slices.Clone(ps)
		answered = slices.DeleteFunc(answered, func(p *publish) bool { return !p.ok() || p.Duplicate || v.find(p.Topic, p.ID) == nil })
		slices.SortFunc(answered, func(a, b *publish) int { return cmp.Compare(a.Ended.Order, b.Ended.Order) })
		var highest *stored
		for _, p := range ps {
			for len(answered) > 0 && answered[0].Ended.Order < p.Began.Order {
				if s := v.find(k.topic, answered[0].ID); highest == nil || s.Seq > highest.Seq {
					highest = s
				}
				answered = answered[1:]
			}
			s := v.find(k.topic, p.ID)
			if s != nil && highest != nil && s.Seq < highest.Seq && s.Partition == highest.Partition {
				broken("key %s of %s through %s: %s, published after %s was answered, is below it (%d, %d)",
					k.key, k.topic, k.sidecar, p.ID, highest.ID, s.Seq, highest.Seq)
			}
		}
	}
}

func checkReads(v *view, broken func(string, ...any)) {
	type reader struct {
		name string
		at   part
	}
	reads := map[reader][]read{}
	for _, r := range v.Reads {
		k := reader{r.Reader, part{r.Topic, r.Partition}}
		reads[k] = append(reads[k], r)
	}
	for k, rs := range reads {
		if !v.lasting(k.at.topic) {
			continue
		}
		events := v.parts[k.at]
		for _, r := range rs {
			for len(events) > 0 && events[0].Seq < r.Seq && events[0].goneBy(r.At.At) {
				events = events[1:]
			}
			if len(events) == 0 || events[0].Seq != r.Seq {
				broken("%s read %s/%d up to seq %d and passed over one that came later", k.name, k.at.topic, k.at.partition, r.Seq)
				break
			}
			events = events[1:]
		}
	}
}

func checkOnce(v *view, broken func(string, ...any)) {
	for id, s := range v.byID {
		if len(s) > 1 {
			broken("%s/%s is in the log %d times", id[0], id[1], len(s))
		}
	}
	for at, events := range v.parts {
		for i := 1; i < len(events); i++ {
			if events[i].Seq == events[i-1].Seq {
				broken("%s/%d: seq %d is given to %s and %s", at.topic, at.partition, events[i].Seq, events[i-1].ID, events[i].ID)
			}
		}
	}
}

func checkConflicts(v *view, broken func(string, ...any)) {
	for _, p := range v.Publishes {
		if p.Code != "conflict" {
			continue
		}
		other := slices.ContainsFunc(v.tries[[2]string{p.Topic, p.ID}], func(q *publish) bool {
			return q.Content != p.Content && q.Began.Order < p.Ended.Order
		})
		if !other {
			broken("%s/%s was refused as a conflict, and nobody had published anything else under this id", p.Topic, p.ID)
		}
	}
}

func checkFates(v *view, broken func(string, ...any)) { v.checkFates(false, broken) }

func checkSkipped(v *view, broken func(string, ...any)) {
	v.checkFates(true, broken)
	for _, l := range v.Lags {
		if l.Ahead != 0 && !v.lasting(l.Topic) { // it will pass over what comes
			broken("group %s of %s is %d beyond the end", l.Group, l.Topic, l.Ahead)
		}
	}
}

// checkFates looks for events that groups are through with although no member asked for that. With
// takenBack it looks at seqs that a group had passed with events that a change of primary has taken
// back since; without it, at all others.
func (v *view) checkFates(takenBack bool, broken func(string, ...any)) {
	for g := range v.groups {
		passed := map[int]uint64{} // by partition
		for _, d := range v.Deliveries {
			if d.Topic != g[0] || d.Group != g[1] || v.lasting(d.Topic) {
				continue
			}
			if s := v.bySeq[place{part{d.Topic, d.Partition}, d.Seq}]; s == nil || s.ID != d.ID {
				passed[d.Partition] = max(passed[d.Partition], d.Seq)
			}
		}
		for _, s := range v.Stored {
			if s.Topic != g[0] || takenBack != (s.Seq <= passed[s.Partition]) {
				continue
			}
			k := [3]string{g[0], g[1], s.ID}
			acked := slices.ContainsFunc(v.byEvt[k], func(d *delivery) bool {
				return slices.ContainsFunc(d.Settles, func(x *settle) bool { return x.Kind == "ack" && !x.Stale })
			})
			if !acked && !s.Gone && len(v.dead[k]) == 0 && !v.died[k] {
				broken("group %s of %s is through with %s, which nobody acked, and which is no dead letter", g[1], g[0], s.ID)
			}
		}
	}
}

func checkDeaths(v *view, broken func(string, ...any)) {
	for k, letters := range v.dead {
		g, ok := v.groups[[2]string{k[0], k[1]}]
		switch {
		case k[1] == "": // a spooled event that conflicts
			continue
		case !ok:
			broken("%s is a dead letter of a group %s that there is not", k[2], k[1])
			continue
		case !v.lasting(k[0]):
			continue
		}
		if len(letters) > 1 {
			broken("%s/%s is a dead letter of group %s %d times", k[0], k[2], k[1], len(letters))
		}
		for _, l := range letters {
			if l.DeadAttempts < g.Attempts {
				broken("%s/%s is a dead letter of group %s after %d of %d attempts", k[0], k[2], k[1], l.DeadAttempts, g.Attempts)
			}
			if l.DeadAttempts == g.Attempts && len(v.byEvt[k]) == 0 {
				broken("%s/%s is a dead letter of group %s, to which it never came", k[0], k[2], k[1])
			}
		}
		for _, d := range v.byEvt[k] {
			if d.acked().came() {
				broken("%s/%s is a dead letter of group %s although an ack of it was answered OK", k[0], k[2], k[1])
			}
		}
	}
}

// unseen is how many attempts of one event can have been counted without a member seeing them. A
// process that is killed, or silent for longer than its lease, may have saved an attempt and not
// sent the delivery. A process that stopped while the store was away, and was declared dead before
// the next process could tell, has an attempt counted for each delivery that it gave back.
func (v *view) unseen(until int) (n int) {
	for _, l := range v.Lives {
		if l.Killed && l.Ended.Order < until {
			n++
		}
		for _, d := range v.Declared {
			if d.At.Order < until && slices.Contains(l.PendingEnds, d.Life) {
				n++
			}
		}
	}
	for _, m := range v.Silences {
		if m.Order < until {
			n++
		}
	}
	return n
}

func checkAttempts(v *view, broken func(string, ...any)) {
	for k, ds := range v.byEvt {
		if !v.lasting(k[0]) {
			continue
		}
		counted := 0 // of the deliveries so far, as far as they may count
		for i, d := range ds {
			if i > 0 && d.Attempt < ds[i-1].Attempt {
				broken("%s/%s came to group %s with attempt %d after %d", k[0], k[2], k[1], d.Attempt, ds[i-1].Attempt)
			}
			if i > 0 && d.Attempt == ds[i-1].Attempt && v.diedWith(ds[i-1], d.Came) {
				broken("%s/%s came to group %s with attempt %d again, although %s was killed during the first",
					k[0], k[2], k[1], d.Attempt, ds[i-1].Sidecar)
			}
			if most := 1 + counted + v.unseen(d.Came.Order); d.Attempt > most {
				broken("%s/%s came to group %s with attempt %d, and at most %d can have counted", k[0], k[2], k[1], d.Attempt, most-1)
			}
			if !d.Returned.came() || d.countedBefore(d.Returned) {
				counted++
			}
		}
	}
}

// diedWith reports whether the delivery was in flight when its sidecar was killed, before a moment. Only a
// member that is told what it loses knows that.
func (v *view) diedWith(d *delivery, by moment) bool {
	_, told := v.windows[d.Consumer]
	inFlight := d.Lost.came() && d.Lost.At < d.Deadline && !d.Returned.came() && len(d.Settles) == 0
	killed := slices.ContainsFunc(v.Lives, func(l *lifetime) bool { return l.Killed && l.Sidecar == d.Sidecar && l.Life == d.Life })
	return told && inFlight && killed && d.Lost.Order < by.Order
}

// countedBefore reports whether the delivery had failed before a moment.
func (d *delivery) countedBefore(m moment) bool {
	return m.At >= d.Deadline || d.Lost.came() && d.Lost.Order < m.Order ||
		slices.ContainsFunc(d.Settles, func(s *settle) bool { return s.Kind == "nack" && s.Began.Order < m.Order })
}

// checkKeyOrder: once a later event of a key has come to a group, an earlier one is settled for
// good.
func checkKeyOrder(v *view, broken func(string, ...any)) {
	type key struct{ topic, group, key string }
	latest := map[key]*delivery{}
	for _, d := range v.Deliveries {
		if d.Key == "" || v.groups[[2]string{d.Topic, d.Group}].Unordered || !v.lasting(d.Topic) {
			continue
		}
		k := key{d.Topic, d.Group, d.Key}
		switch before := latest[k]; {
		case before == nil || before.Seq < d.Seq:
			latest[k] = d
			if before != nil && !v.asked(before, d.Came) {
				broken("%s/%s came to group %s before %s of its key was settled", d.Topic, d.ID, d.Group, before.ID)
			}
		case before.Seq > d.Seq:
			broken("%s/%s came to group %s after %s, a later event of its key", d.Topic, d.ID, d.Group, before.ID)
		}
	}
}

// asked reports whether a member had asked for the event to be settled before a moment, or the
// event is a dead letter, or was removed.
func (v *view) asked(d *delivery, by moment) bool {
	k := [3]string{d.Topic, d.Group, d.ID}
	return len(v.dead[k]) > 0 || v.died[k] || v.bySeq[place{part{d.Topic, d.Partition}, d.Seq}].goneBy(by.At) ||
		slices.ContainsFunc(v.byEvt[k], func(o *delivery) bool {
			return slices.ContainsFunc(o.Settles, func(s *settle) bool { return s.Kind == "ack" && s.Began.Order < by.Order })
		})
}

func checkSettledAgain(v *view, broken func(string, ...any)) {
	for k, ds := range v.byEvt {
		if !v.lasting(k[0]) { // it may have been lost, and published again
			continue
		}
		acked := moment{}
		for _, d := range ds {
			if acked.came() && d.Came.Order > acked.Order {
				broken("%s/%s came to %s of group %s at %v (attempt %d), after an ack of it was answered OK at %v",
					k[0], k[2], d.Consumer, k[1], d.Came.At, d.Attempt, acked.At)
			}
			if a := d.acked(); a.came() && (!acked.came() || a.Order < acked.Order) {
				acked = a
			}
		}
	}
}

// checkLeases: of two deliveries of one event, the group accepts the ack of one alone. Before the
// first fault, a member that is told what it loses never gets an event whose earlier delivery is
// still in force.
func checkLeases(v *view, broken func(string, ...any)) {
	for k, ds := range v.byEvt {
		if !v.lasting(k[0]) { // it may have been lost, and published again
			continue
		}
		var first *delivery
		for _, d := range ds {
			switch {
			case !d.acked().came():
			case first == nil:
				first = d
			default:
				broken("%s/%s of group %s was acked by %s and by %s, and both were answered OK", k[0], k[2], k[1], first.Consumer, d.Consumer)
			}
		}
		for i, d := range ds {
			for _, before := range ds[:i] {
				_, told := v.windows[before.Consumer]
				if calm := !v.Troubled.came() || d.Came.Order < v.Troubled.Order; told && calm && !before.over(d.Came) {
					broken("%s/%s came to %s of group %s at %v, while %s had it until %v", k[0], k[2], d.Consumer, k[1], d.Came.At, before.Consumer,
						before.Deadline)
				}
			}
		}
	}
}

// checkWindows counts for members that are told what they lose; other members cannot know which
// deliveries still count.
func checkWindows(v *view, broken func(string, ...any)) {
	held := map[string][]*delivery{}
	for _, d := range v.Deliveries {
		window, told := v.windows[d.Consumer]
		if !told {
			continue
		}
		mine := slices.DeleteFunc(held[d.Consumer], func(o *delivery) bool { return o.over(d.Came) })
		mine = append(mine, d)
		held[d.Consumer] = mine
		if len(mine) > window {
			broken("%s had %d in flight at %v, and its window is %d", d.Consumer, len(mine), d.Came.At, window)
		}
	}
}

// over reports whether the delivery had come to its end at a moment, for all that its member knows.
func (d *delivery) over(at moment) bool {
	ended := func(m moment) bool { return m.came() && m.Order < at.Order }
	return at.At >= d.Deadline || ended(d.Returned) || ended(d.Lost) ||
		slices.ContainsFunc(d.Settles, func(s *settle) bool { return s.Kind != "extend" && s.Began.Order < at.Order })
}

// checkRemoved looks at events that are not in the log any more, and at events that are forgotten.
func checkRemoved(v *view, broken func(string, ...any)) {
	for at, events := range v.parts {
		t := v.topics[at.topic]
		latest := map[string]uint64{}
		for _, s := range events {
			latest[s.Key] = s.Seq
		}
		for _, s := range events {
			tries := v.tries[[2]string{s.Topic, s.ID}]
			if !s.Gone || len(tries) == 0 {
				continue
			}
			began := tries[0].Began.At
			age := s.GoneAt - began + v.skew
			expired := t.Retention > 0 && age >= t.Retention.d()
			superseded := t.Compact && s.Key != "" && (s.Seq < latest[s.Key] || s.Content == "null" && age >= retention.TombstoneAge)
			if !expired && !superseded {
				broken("%s/%s at %d/%d, first published at %v, was removed at %v", s.Topic, s.ID, s.Partition, s.Seq, began, s.GoneAt)
			}
			known := t.Window == 0 || s.Forgotten-began+v.skew < t.Window.d() || s.Forgotten-s.GoneAt+v.skew < mongolog.DefaultSeqTaken
			if s.Forgotten > 0 && known {
				broken("%s/%s at %d/%d, first published at %v and removed at %v, is forgotten at %v",
					s.Topic, s.ID, s.Partition, s.Seq, began, s.GoneAt, s.Forgotten)
			}
		}
	}
}

// checkSpooled looks at events that were published before the first fault.
func checkSpooled(v *view, broken func(string, ...any)) {
	for _, p := range v.Publishes {
		if calm := !v.Troubled.came() || p.Ended.Order < v.Troubled.Order; p.Spooled && calm && v.lasting(p.Topic) {
			broken("%s/%s was spooled by %s at %v", p.Topic, p.ID, p.Sidecar, p.Ended.At)
		}
	}
}

func checkStuck(v *view, broken func(string, ...any)) {
	for _, what := range v.Unmet {
		broken("%s", what)
	}
	for _, l := range v.Lags {
		if l.Events != 0 {
			broken("group %s of %s has %d events left", l.Group, l.Topic, l.Events)
		}
		if l.Ahead != 0 && v.lasting(l.Topic) {
			broken("group %s of %s is %d beyond the end", l.Group, l.Topic, l.Ahead)
		}
		if l.Redriven {
			broken("group %s of %s does not come to the end of what is redriven", l.Group, l.Topic)
		}
	}
}

// deadLettersOf is the topic whose dead letters a topic has.
func deadLettersOf(topic string) (string, bool) {
	const suffix = ".dlq"
	if n := len(topic) - len(suffix); n > 0 && topic[n:] == suffix {
		return topic[:n], true
	}
	return "", false
}

// breaks reports whether one of the violations is of the rule; "" stands for any.
func breaks(all []violation, name string) bool {
	return len(all) > 0 && (name == "" || slices.ContainsFunc(all, func(v violation) bool { return v.Rule == name }))
}
