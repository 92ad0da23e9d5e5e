package dispatch

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
)

// Admit takes in a fetched event; passed says that no filter of the group lets it pass.
func (d *Dispatcher) Admit(e *Event, passed bool, now time.Time) {
	if passed {
		e.Partition.reach.settle(e.Record.Key)
		e.State, e.Record = Settled, nil
		e.Partition.Dirty, e.Partition.unused = true, false
		e.Partition.trim()
		return
	}
	d.addBytes(e.Record.Size())
	d.ids.add(e)
	first := d.keys.add(e)
	switch {
	case e.wakeAt.After(now):
		e.State = Delayed
		d.Timers.Set(e, e.wakeAt)
	case first || !d.ordered:
		d.makeReady(e)
	}
}

// AdmitRedrives takes in redrives of a partition whose events there are; more says that the store
// has others, behind those in memory. over reports whether a redrive is settled.
func (d *Dispatcher) AdmitRedrives(p *Partition, rs []eventlog.Redrive, more bool, events map[string]*eventlog.Record,
	over func(eventlog.Redrive) bool, now time.Time,
) {
	q := &p.Redrive
	listed := map[string]bool{}
	q.more = more
	for _, r := range rs {
		listed[r.Letter] = true
		rec := events[r.Letter]
		if rec == nil {
			// If it is gone, the store may have a redrive of the same event's next dead letter.
			q.Look = q.Look || !slices.ContainsFunc(q.events, func(e *Event) bool { return e.Letter == r.Letter })
			continue
		}
		if q.open() >= RedrivesAhead || d.Bytes >= d.cfg.MaxBytes {
			q.more, q.Look = true, true
			break
		}
		k := q.known[r.Letter]
		delete(q.known, r.Letter)
		e := &Event{
			Record: rec, Partition: p, Seq: r.Seq, index: -1, Letter: r.Letter, Attempts: k.Attempts, unsure: k.Unsure, named: true,
			wakeAt: k.wakeAt,
		}
		q.events = append(q.events, e)
		d.Admit(e, k.Done || over(r), now)
	}
	if !q.more { // redrives that are no longer in the store are settled
		maps.DeleteFunc(q.known, func(letter string, _ knownRedrive) bool { return !listed[letter] })
	}
}

// Load makes the partitions known.
func (d *Dispatcher) Load(partitions int) {
	d.Parts = make([]*Partition, partitions)
	for i := range d.Parts {
		d.Parts[i] = &Partition{Place: reader.Place{Index: i}}
	}
}
