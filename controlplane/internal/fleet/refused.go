package fleet

import "github.com/sluice-bus/sluice/internal/health"

// MaxRefusals bounds the pairs of a topic and a code whose refusals of the last hour are kept: 2 KiB each.
// Refusals of further ones are not shown by topic.
const MaxRefusals = 10_000

// Refuse adds events that a sidecar has refused since its last report.
func (r *Registry) Refuse(events []health.Refused) {
	if len(events) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.elapsed(r.now())
	r.sweep(now)
	for _, e := range events {
		r.reasons.add(e.Topic, string(e.Code), now, float64(e.Events))
	}
}

// refusedByTopic has the refusals of the last hour by topic and code: those of this control plane's sidecars.
func (r *Registry) refusedByTopic() map[string]map[string]int64 {
	last, all := slotOf(r.elapsed(r.now())), map[string]map[string]int64{}
	for topic, codes := range r.reasons.by {
		for code, one := range codes {
			var sum float64
			for _, slot := range one.until(last) {
				sum += float64(slot.Events)
			}
			if sum > 0 {
				addRefusals(all, topic, map[string]int64{code: int64(sum)})
			}
		}
	}
	return all
}

// addRefusals adds those of a topic, by code.
func addRefusals(to map[string]map[string]int64, topic string, codes map[string]int64) {
	if to[topic] == nil {
		to[topic] = map[string]int64{}
	}
	for code, n := range codes {
		to[topic][code] += n
	}
}
