package simulation

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A teller writes a history by hand: one topic t with the group g, whose members have until 10 s
// and 3 attempts.
type teller struct{ *history }

func tell(what func(h *teller)) *history {
	h := &teller{newHistory(&plan{
		Topics:    []topicPlan{{Name: "t", Partitions: 1}},
		Groups:    []groupPlan{{Topic: "t", Name: "g", AckTimeout: 10_000, Attempts: 3}},
		Consumers: []consumerPlan{{Window: 1, Told: true}, {Window: 5}},
	})}
	what(h)
	return h.history
}

func (h *teller) now() (m moment) {
	h.note(func(now moment) { m = moment{now.Order, time.Duration(now.Order) * time.Second} })
	return m
}

// publish is one attempt that was answered OK with seq, or as how says.
func (h *teller) publish(id string, seq uint64, how ...func(*publish)) *publish {
	p := &publish{Sidecar: "s0", Topic: "t", ID: id, Key: "k", Content: "content of " + id, Seq: seq, Began: h.now()}
	p.Ended = h.now()
	for _, f := range how {
		f(p)
	}
	h.Publishes = append(h.Publishes, p)
	return p
}

func unanswered(p *publish) { p.Ended, p.Seq = moment{}, 0 }
func spooled(p *publish)    { p.Spooled, p.Seq = true, 0 }
func clash(p *publish)      { p.Code, p.Content, p.Seq = "conflict", "something else", 0 }

func (h *teller) store(id string, seq uint64) {
	h.Stored = append(h.Stored, stored{Topic: "t", ID: id, Key: "k", Content: "content of " + id, Seq: seq})
}

// remove is an event that retention or compaction removes now.
func (h *teller) remove(id string, seq uint64) {
	h.store(id, seq)
	s := &h.Stored[len(h.Stored)-1]
	s.Gone, s.GoneAt = true, h.now().At
}

// insert is a document in the outbox that was inserted for sure, and is done.
func (h *teller) insert(id string, seq uint64) *entry {
	e := &entry{Topic: "t", ID: id, Key: "k", Content: "content of " + id, Began: h.now(), Status: "done", Seq: seq}
	e.Ended = h.now()
	h.Entries = append(h.Entries, e)
	return e
}

// schedule is a publish that was answered OK, of an event that is due some time after the start,
// and of which the log has the time ts.
func (h *teller) schedule(id string, due, ts time.Duration) {
	h.publish(id, 0).DeliverAt = h.start.Add(due).UnixMilli()
	h.take(id, 1)
	h.Stored[len(h.Stored)-1].TS = h.start.Add(ts).UnixMilli()
}

// cancel is a call that was answered OK.
func (h *teller) cancel(id string) {
	c := &cancel{Topic: "t", ID: id, Began: h.now()}
	c.Ended = h.now()
	h.Cancels = append(h.Cancels, c)
}

// capture is a document that was inserted, updated and deleted, with these events of it in the log;
// the versions of its document stand for the first two.
func (h *teller) capture(contents ...string) {
	for i, op := range []string{"insert", "update", "delete"} {
		c := &documentChange{Op: op, ID: "d", Version: min(i+1, 2), Began: h.now()}
		c.Ended = h.now()
		h.Changes = append(h.Changes, c)
	}
	for i, content := range contents {
		h.Stored = append(h.Stored, stored{Topic: capturedTopic, ID: fmt.Sprint("change-", i), Key: "d", Content: content, Seq: uint64(i + 1)})
	}
}

// changed is the content of an event of a document.
func changed(op string, version int) string {
	return fmt.Sprintf(`{"op":%q,"document":{"version":%d}}`, op, version)
}

// take is an event of the log as far as its ack.
func (h *teller) take(id string, seq uint64) {
	h.store(id, seq)
	h.settle(h.deliver(id, seq, 1), "ack")
}

func (h *teller) deadLetter(id string, attempts int) {
	h.Stored = append(h.Stored, stored{Topic: "t.dlq", ID: "dlq-" + id, Seq: uint64(len(h.Stored) + 1), DeadID: id, DeadGroup: "g",
		DeadAttempts: attempts})
}

// redrive is a call for dead letters of events that were published, and have used up their
// attempts.
func (h *teller) redrive(ids ...string) *redrive {
	call := &redrive{Topic: "t", Group: "g"}
	for i, id := range ids {
		h.publish(id, uint64(i+1))
		h.store(id, uint64(i+1))
		call.IDs, call.Letters = append(call.IDs, id), append(call.Letters, "dlq-"+id)
	}
	call.Began = h.now()
	call.Ended = h.now()
	h.Redrives = append(h.Redrives, call)
	return call
}

// again is a delivery of a redriven event.
func (h *teller) again(id string, seq uint64, _ *redrive) *delivery {
	d := h.deliver(id, seq, 1)
	h.Deliveries = h.Deliveries[:len(h.Deliveries)-1]
	h.Redelivered = append(h.Redelivered, d)
	return d
}

// deliver is a delivery to the consumer c0, unless another is named.
func (h *teller) deliver(id string, seq uint64, attempt int, to ...string) *delivery {
	d := &delivery{Consumer: "c0", Sidecar: "s0", Topic: "t", Group: "g", ID: id, Key: "k", Seq: seq, Attempt: attempt, Came: h.now()}
	d.Deadline = d.Came.At + 10*time.Second
	for _, name := range to {
		d.Consumer = name
	}
	h.Deliveries = append(h.Deliveries, d)
	return d
}

func (h *teller) settle(d *delivery, kind string) *settle {
	s := &settle{Kind: kind, Began: h.now()}
	s.Ended = h.now()
	d.Settles = append(d.Settles, s)
	return s
}

// whole is an event from its publish to its ack.
func (h *teller) whole(id string, seq uint64) {
	h.publish(id, seq)
	h.store(id, seq)
	h.settle(h.deliver(id, seq, 1), "ack")
}

// TestRules holds every rule against a history that breaks it and nothing else, and against one
// that comes close.
func TestRules(t *testing.T) {
	broken := map[string]bool{}
	for _, c := range []struct {
		name   string
		breaks []string
		tell   func(h *teller)
	}{
		{"nothing happened", nil, func(h *teller) {}},
		{"two events, one after the other", nil, func(h *teller) { h.whole("a", 1); h.whole("b", 2) }},
		{"an answered event is not there", []string{"lost"}, func(h *teller) { h.publish("a", 1) }},
		{"an event that was not answered is not there", nil, func(h *teller) { h.publish("a", 1, unanswered) }},
		{"a spooled event is not there", []string{"lost"}, func(h *teller) {
			h.Troubled = h.now()
			h.publish("a", 0, spooled)
		}},
		{"an event that is spooled while the store is there", []string{"spooled"}, func(h *teller) {
			h.whole("a", 1)
			h.publish("a", 0, spooled)
		}},
		{"an event is elsewhere than was said", []string{"lost"}, func(h *teller) { h.whole("a", 1); h.publish("a", 2) }},
		{"an event is there twice", []string{"once"}, func(h *teller) { h.whole("a", 1); h.store("a", 2) }},
		{"a seq is given twice", []string{"once", "unstored"}, func(h *teller) {
			h.whole("a", 1)
			h.publish("b", 1)
			h.deadLetter("b", 4)
			h.store("b", 1)
		}},
		{"a delivered event is not there", []string{"unstored"}, func(h *teller) {
			h.settle(h.deliver("a", 1, 1), "ack")
		}},
		{"a later publish is below an answered one", []string{"order", "overtaken"}, func(h *teller) {
			h.publish("a", 2)
			h.publish("b", 1)
			h.store("b", 1)
			h.store("a", 2)
			h.settle(h.deliver("b", 1, 1), "ack")
			h.settle(h.deliver("a", 2, 1), "ack")
		}},
		{"a later publish through the same sidecar is below a spooled one", []string{"overtaken"}, func(h *teller) {
			h.Troubled = h.now()
			h.publish("a", 0, spooled)
			h.publish("b", 0, spooled)
			h.store("b", 1)
			h.store("a", 2)
			h.settle(h.deliver("b", 1, 1), "ack")
			h.settle(h.deliver("a", 2, 1), "ack")
		}},
		{"a later publish through another sidecar is below a spooled one", nil, func(h *teller) {
			h.Troubled = h.now()
			h.publish("a", 0, spooled)
			h.publish("b", 1, func(p *publish) { p.Sidecar = "s1" })
			h.store("b", 1)
			h.store("a", 2)
			h.settle(h.deliver("b", 1, 1), "ack")
			h.settle(h.deliver("a", 2, 1), "ack")
		}},
		{"publishes at one time are in either order", nil, func(h *teller) {
			a, b := h.publish("a", 2), h.publish("b", 1)
			a.Ended = b.Ended
			h.store("b", 1)
			h.store("a", 2)
			h.settle(h.deliver("b", 1, 1), "ack")
			h.settle(h.deliver("a", 2, 1), "ack")
		}},
		{"a reader passes over an event", []string{"look-back"}, func(h *teller) {
			h.whole("a", 1)
			h.whole("b", 2)
			h.Reads = append(h.Reads, read{"r", "t", 0, 2, "b", h.now()})
		}},
		{"a reader is behind", nil, func(h *teller) {
			h.whole("a", 1)
			h.whole("b", 2)
			h.Reads = append(h.Reads, read{"r", "t", 0, 1, "a", h.now()})
		}},
		{"a conflict with something else", nil, func(h *teller) { h.whole("a", 1); h.publish("a", 0, clash) }},
		{"a conflict with nothing", []string{"conflict"}, func(h *teller) { h.publish("a", 0, clash) }},
		{"an event that nobody acked", []string{"silent-drop"}, func(h *teller) { h.publish("a", 1); h.store("a", 1); h.deliver("a", 1, 1) }},
		{"an event whose ack came too late", []string{"silent-drop"}, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			h.settle(h.deliver("a", 1, 1), "ack").Stale = true
		}},
		{"an event at a seq that was lost when a group had passed it", []string{"skipped"}, func(h *teller) {
			h.topics["t"] = topicPlan{Name: "t", WriteConcern: "w:1"}
			h.publish("a", 1)
			h.settle(h.deliver("a", 1, 1), "ack")
			h.publish("b", 1)
			h.store("b", 1)
		}},
		{"an event that nobody acked above one that was lost", []string{"silent-drop"}, func(h *teller) {
			h.topics["t"] = topicPlan{Name: "t", WriteConcern: "w:1"}
			h.publish("a", 1)
			h.settle(h.deliver("a", 1, 1), "ack")
			h.publish("b", 2)
			h.store("b", 2)
		}},
		{"a dead letter", nil, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			for n := range 3 {
				h.settle(h.deliver("a", 1, n+1), "nack")
			}
			h.deadLetter("a", 3)
		}},
		{"a dead letter before its time", []string{"false-death"}, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			h.settle(h.deliver("a", 1, 1), "nack")
			h.deadLetter("a", 1)
		}},
		{"a dead letter that never came", []string{"false-death"}, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			h.deadLetter("a", 3)
		}},
		{"a dead letter that was acked", []string{"false-death"}, func(h *teller) { h.whole("a", 1); h.deadLetter("a", 3) }},
		{"attempts that fall", []string{"attempts"}, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			h.settle(h.deliver("a", 1, 1), "nack")
			h.settle(h.deliver("a", 1, 2), "nack")
			h.settle(h.deliver("a", 1, 1), "ack")
		}},
		{"an attempt that was given back", []string{"attempts"}, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			h.deliver("a", 1, 1).Returned = h.now()
			h.settle(h.deliver("a", 1, 2), "ack")
		}},
		{"an attempt of a killed sidecar", nil, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			h.Lives = append(h.Lives, &lifetime{Ended: h.now(), Killed: true})
			h.settle(h.deliver("a", 1, 2), "ack")
		}},
		{"an attempt that died with its sidecar", []string{"attempts"}, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			first := h.deliver("a", 1, 1)
			h.windows[first.Consumer], first.Lost = 1, h.now()
			h.Lives = append(h.Lives, &lifetime{Sidecar: first.Sidecar, Life: first.Life, Ended: h.now(), Killed: true})
			h.settle(h.deliver("a", 1, 1), "ack")
		}},
		{"a key that overtakes itself", []string{"key-order"}, func(h *teller) {
			h.publish("a", 1)
			h.publish("b", 2)
			h.store("a", 1)
			h.store("b", 2)
			b := h.deliver("b", 2, 1, "c1")
			h.settle(h.deliver("a", 1, 1), "ack")
			h.settle(b, "ack")
		}},
		{"a key of which two are in flight", []string{"key-order"}, func(h *teller) {
			h.publish("a", 1)
			h.publish("b", 2)
			h.store("a", 1)
			h.store("b", 2)
			a := h.deliver("a", 1, 1)
			h.settle(h.deliver("b", 2, 1, "c1"), "ack")
			h.settle(a, "ack")
		}},
		{"an acked event again", []string{"settled-again"}, func(h *teller) { h.whole("a", 1); h.deliver("a", 1, 2, "c1") }},
		{"an event again whose ack failed", nil, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			h.settle(h.deliver("a", 1, 1), "ack").Failed = true
			h.settle(h.deliver("a", 1, 2, "c1"), "ack")
		}},
		{"a dead letter that is redriven and acked", nil, func(h *teller) { h.settle(h.again("a", 1, h.redrive("a")), "ack") }},
		{"a dead letter that is redriven for another group", []string{"redriven", "silent-drop"}, func(h *teller) {
			call := h.redrive("a")
			h.settle(h.again("a", 1, call), "ack")
			call.Group = "another"
		}},
		{"a redriven event again after its ack", []string{"redriven"}, func(h *teller) {
			call := h.redrive("a")
			h.settle(h.again("a", 1, call), "ack")
			h.again("a", 1, call)
		}},
		{"a redriven event that never comes", []string{"redriven"}, func(h *teller) { h.redrive("a"); h.deadLetter("a", 4) }},
		{"a redriven event that is neither acked nor listed", []string{"redriven"}, func(h *teller) { h.again("a", 1, h.redrive("a")) }},
		{"a redriven event that was acked and is listed", []string{"redriven"}, func(h *teller) {
			h.settle(h.again("a", 1, h.redrive("a")), "ack")
			h.deadLetter("a", 4)
		}},
		{"redriven events of a key upside down", []string{"redriven"}, func(h *teller) {
			call := h.redrive("a", "b")
			h.settle(h.again("b", 2, call), "ack")
			h.settle(h.again("a", 1, call), "ack")
		}},
		{"a discarded dead letter", nil, func(h *teller) { h.redrive("a").Discards = true }},
		{"a discarded dead letter that is listed", []string{"redriven"},
			func(h *teller) { h.redrive("a").Discards = true; h.deadLetter("a", 4) }},
		{"redrives that come to no end", []string{"stuck"},
			func(h *teller) { h.Lags = append(h.Lags, lag{Topic: "t", Group: "g", Redriven: true}) }},
		{"two live leases", []string{"two-leases"}, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			first, second := h.deliver("a", 1, 1), h.deliver("a", 1, 2, "c1")
			h.settle(first, "ack")
			h.settle(second, "ack")
		}},
		{"an event that somebody has", []string{"two-leases"}, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			h.deliver("a", 1, 1)
			h.settle(h.deliver("a", 1, 1, "c1"), "ack")
		}},
		{"an event that somebody has who was not heard of", nil, func(h *teller) {
			h.publish("a", 1)
			h.store("a", 1)
			h.deliver("a", 1, 1)
			h.Troubled = h.now()
			h.settle(h.deliver("a", 1, 1, "c1"), "ack")
		}},
		{"a full window", []string{"window"}, func(h *teller) {
			h.publish("a", 1).Key = ""
			h.publish("b", 2).Key = ""
			h.store("a", 1)
			h.store("b", 2)
			a, b := h.deliver("a", 1, 1), h.deliver("b", 2, 1)
			a.Key, b.Key = "", ""
			h.settle(a, "ack")
			h.settle(b, "ack")
		}},
		{"two documents of an outbox", nil, func(h *teller) { h.insert("a", 1); h.insert("b", 2); h.take("a", 1); h.take("b", 2) }},
		{"a document that is done and not in the log", []string{"outbox-lost"}, func(h *teller) { h.insert("a", 1) }},
		{"a document that is never published", []string{"outbox-lost"}, func(h *teller) { h.insert("a", 0).Status = "pending" }},
		{"a document of which nobody knows whether it was inserted", nil, func(h *teller) {
			e := h.insert("a", 0)
			e.Ended, e.Status = moment{}, ""
		}},
		{"a document whose event is elsewhere than it says", []string{"outbox-lost"}, func(h *teller) { h.insert("a", 2); h.take("a", 1) }},
		{"two documents of a key in another order", []string{"outbox-order"}, func(h *teller) {
			h.insert("a", 2)
			h.insert("b", 1)
			h.take("b", 1)
			h.take("a", 2)
		}},
		{"a captured document", nil, func(h *teller) { h.capture(changed("insert", 1), changed("update", 2), "null") }},
		{"an update whose document is gone when it is looked up", nil, func(h *teller) {
			h.capture(changed("insert", 1), `{"op":"update","document":null}`, "null")
		}},
		{"a captured change without an event", []string{"captured"}, func(h *teller) { h.capture(changed("insert", 1), "null") }},
		{"a captured change with two events", []string{"captured"}, func(h *teller) {
			h.capture(changed("insert", 1), changed("update", 2), changed("update", 2), "null")
		}},
		{"captured changes in another order", []string{"captured"}, func(h *teller) {
			h.capture(changed("update", 2), changed("insert", 1), "null")
		}},
		{"an update with an earlier version", []string{"captured"}, func(h *teller) {
			h.capture(changed("insert", 1), changed("update", 1), "null")
		}},
		{"an event that nobody published", []string{"invented"}, func(h *teller) { h.take("a", 1) }},
		{"an event that expired before anybody had it", nil, func(h *teller) {
			h.topics["t"] = topicPlan{Name: "t", Retention: 1000}
			h.publish("a", 1)
			h.remove("a", 1)
			h.whole("b", 2)
			h.Reads = append(h.Reads, read{"r", "t", 0, 2, "b", h.now()})
		}},
		{"an event that is removed before its time", []string{"removed"}, func(h *teller) {
			h.topics["t"] = topicPlan{Name: "t", Retention: 60_000}
			h.publish("a", 1)
			h.remove("a", 1)
		}},
		{"an event that is removed and not superseded", []string{"removed"}, func(h *teller) {
			h.topics["t"] = topicPlan{Name: "t", Compact: true}
			h.publish("a", 1)
			h.remove("a", 1)
			h.publish("b", 2, func(p *publish) { p.Key = "other" })
			h.take("b", 2)
			h.Stored[1].Key, h.Deliveries[0].Key = "other", "other"
		}},
		{"an event that is superseded", nil, func(h *teller) {
			h.topics["t"] = topicPlan{Name: "t", Compact: true}
			h.publish("a", 1)
			h.remove("a", 1)
			h.whole("b", 2)
		}},
		{"an event that is forgotten within a day", []string{"removed"}, func(h *teller) {
			h.topics["t"] = topicPlan{Name: "t", Retention: 1000, Window: 1000}
			h.publish("a", 1)
			h.remove("a", 1)
			h.Stored[0].Forgotten = time.Hour
		}},
		{"a reader passes over an event that is removed later", []string{"look-back"}, func(h *teller) {
			h.topics["t"] = topicPlan{Name: "t", Retention: 1000}
			h.publish("a", 1)
			h.whole("b", 2)
			h.Reads = append(h.Reads, read{"r", "t", 0, 2, "b", h.now()})
			h.remove("a", 1)
		}},
		{"a scheduled event that comes when it is due", nil, func(h *teller) { h.schedule("a", 3*time.Second, 3*time.Second) }},
		{"a scheduled event that comes early", []string{"scheduled"}, func(h *teller) { h.schedule("a", time.Minute, time.Minute) }},
		{"a scheduled event with an earlier time", []string{"scheduled"}, func(h *teller) { h.schedule("a", time.Second, time.Second/2) }},
		{"a scheduled event that comes early by a clock that is ahead", nil, func(h *teller) {
			h.ahead = time.Hour
			h.schedule("a", time.Minute, time.Minute)
		}},
		{"a scheduled event that is gone", []string{"lost"}, func(h *teller) { h.publish("a", 0).DeliverAt = 1 }},
		{"a cancelled event", nil, func(h *teller) {
			h.publish("a", 0).DeliverAt = 1
			h.cancel("a")
		}},
		{"a cancelled event that comes", []string{"scheduled"}, func(h *teller) {
			h.publish("a", 0).DeliverAt = 1
			h.cancel("a")
			h.take("a", 1)
			h.Stored[0].TS = 1
		}},
		{"a cancelled event that somebody may be publishing", nil, func(h *teller) {
			h.publish("a", 0).DeliverAt = 1
			h.publish("a", 0, unanswered).DeliverAt = 1
			h.cancel("a")
			h.take("a", 1)
			h.Stored[0].TS = 1
		}},
		{"a cancelled event that was published otherwise meanwhile", nil, func(h *teller) {
			h.publish("a", 0).DeliverAt = 1
			began := h.now()
			h.cancel("a")
			h.publish("a", 0, clash).Began = began
		}},
		{"a cancelled event whose id is not free", []string{"scheduled"}, func(h *teller) {
			h.publish("a", 0).DeliverAt = 1
			h.cancel("a")
			h.publish("a", 0, clash)
		}},
		{"a group that does not get on", []string{"stuck"}, func(h *teller) { h.Lags = append(h.Lags, lag{Topic: "t", Group: "g", Events: 1}) }},
		{"a publish that is never answered", []string{"stuck"}, func(h *teller) { h.Unmet = append(h.Unmet, "p0 could not publish") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, v := range tell(c.tell).check() {
				broken[v.Rule] = true
				if !slices.Contains(got, v.Rule) {
					got = append(got, v.Rule)
				}
				t.Log(v)
			}
			slices.Sort(got)
			slices.Sort(c.breaks)
			if !slices.Equal(got, c.breaks) {
				t.Errorf("breaks %v; want %v", got, c.breaks)
			}
		})
	}
	for _, r := range rules {
		if !broken[r.name] {
			t.Errorf("no history breaks the rule %s", r.name)
		}
	}
}
