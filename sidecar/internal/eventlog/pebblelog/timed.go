package pebblelog

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// An event whose timed id tells its ts has no entry for its id: it has no key, so that the id tells the partition, too, and
// it is in order there, so that the time index leads to it. Once retention has removed it, the id has an entry like others.

// timed says that an event in order is found by its id.
func (a *appending) timed(r *eventlog.Record) bool {
	if !r.FreshID || r.Key != "" || a.log.queue || a.partition != eventlog.PartitionOf("", r.ID, len(a.topic.partitions)) {
		return false
	}
	ts, timed := eventlog.TimeOfID(r.ID)
	return timed && ts == r.TS
}

// timedEvent looks for the event with a timed id, which may not be synced yet; seq 0: it is not there. The error is of
// events that cannot be read, one of which it may be.
func (l *Log) timedEvent(t *topic, at eventlog.Point) (found location, damage error) {
	p := eventlog.PartitionOf("", at.ID, len(t.partitions))
	part, err := l.partition(t, p)
	if err != nil {
		return location{}, err
	}
	prefix := orderPrefix(nil, t.id, p)
	times, err := l.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return location{}, err
	}
	defer times.Close()
	// The event itself may be in the time index: the next key is above it.
	if !times.SeekLT(append(appendPoint(prefix, at.TS, at.ID), 0)) {
		return location{}, times.Error()
	}
	d := decoder{rest: times.Value()}
	from := d.uvarint()
	c, err := l.view().open(t, p, times)
	if err != nil {
		return location{}, err
	}
	defer c.close()
	for r := range c.intact(max(from, part.floor.Load()+1), &damage) {
		order := r.point().Compare(at)
		if order == 0 {
			return location{partition: p, seq: r.Seq}, nil
		}
		if order > 0 && !r.outOfOrder || r.Seq >= from+orderEvery {
			break
		}
	}
	return location{}, damage
}
