package fleet

import (
	"maps"
	"time"
)

// The last hour of a topic at a sidecar is kept in slots, for what a change of a policy would have refused.
const (
	HourSlot  = 15 * time.Second
	hourSlots = int64(time.Hour / HourSlot)
	// MaxHours bounds the pairs of a topic and a sidecar whose last hour is kept: 2 KiB each.
	MaxHours = 25_000
)

// Hour has the slots of the last hour, the latest last.
type Hour [hourSlots]Slot

// Slot counts the events that publishers sent, accepted and refused ones. Peak has those of the busiest
// second: a limit refuses a burst that it would take if it were spread.
type Slot struct{ Events, Peak float32 }

// Hours are the last hour of topics, as the sidecars of this control plane saw it.
type Hours struct {
	Since    time.Time
	Complete bool              // no topic or sidecar was left out within the hour
	Topics   map[string][]Hour // a topic's, by sidecar
}

// hours keep the last hour. Times are durations since the registry began.
type hours struct {
	most    int
	by      map[string]map[string]*hour
	pairs   int
	leftOut time.Duration // when a pair was last left out; 0: never
}

type hour struct {
	slots  Hour
	last   int64   // the newest slot
	second int64   // the newest second
	events float32 // in that second
}

func newHours(most int) hours { return hours{most: most, by: map[string]map[string]*hour{}} }

func slotOf(at time.Duration) int64 { return int64(at / HourSlot) }

// add counts events. A pair beyond the bound is left out.
func (h *hours) add(topic, of string, at time.Duration, events float64) {
	one := h.by[topic][of]
	if one == nil {
		if h.pairs >= h.most {
			h.leftOut = max(at, 1)
			return
		}
		if h.by[topic] == nil {
			h.by[topic] = map[string]*hour{}
		}
		one = &hour{last: slotOf(at)}
		h.by[topic][of] = one
		h.pairs++
	}
	one.add(at, float32(events))
}

func (h *hour) add(at time.Duration, events float32) {
	for s := max(h.last+1, slotOf(at)-hourSlots+1); s <= slotOf(at); s++ {
		h.slots[s%hourSlots] = Slot{}
	}
	h.last = max(h.last, slotOf(at))
	if second(at) > h.second {
		h.second, h.events = second(at), 0
	}
	h.events += events
	slot := &h.slots[h.last%hourSlots]
	slot.Events += events
	slot.Peak = max(slot.Peak, h.events)
}

// until returns the slots that end with a slot.
func (h *hour) until(last int64) (slots Hour) {
	for i := range hourSlots {
		if s := last - hourSlots + 1 + i; s >= 0 && s <= h.last && s > h.last-hourSlots {
			slots[i] = h.slots[s%hourSlots]
		}
	}
	return slots
}

// sweep removes what is older than the hour.
func (h *hours) sweep(now time.Duration) {
	h.pairs = 0
	for topic, nodes := range h.by {
		maps.DeleteFunc(nodes, func(_ string, one *hour) bool { return one.last <= slotOf(now)-hourSlots })
		if len(nodes) == 0 {
			delete(h.by, topic)
		}
		h.pairs += len(nodes)
	}
}

// Hours returns the last hour of the wanted topics.
func (r *Registry) Hours(wanted func(topic string) bool) Hours {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.elapsed(r.now())
	out := Hours{
		Since: r.start.Add(max(now-time.Hour, 0)), Topics: map[string][]Hour{},
		Complete: r.hours.leftOut == 0 || now-r.hours.leftOut > time.Hour,
	}
	for topic, nodes := range r.hours.by {
		if !wanted(topic) {
			continue
		}
		for _, one := range nodes {
			if one.last > slotOf(now)-hourSlots {
				out.Topics[topic] = append(out.Topics[topic], one.until(slotOf(now)))
			}
		}
	}
	return out
}
