package writer

import (
	"errors"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
)

// Notifier tells readers what appends have made readable. Any of its fields may be nil.
type Notifier struct {
	// Tails wakes the readers of this sidecar.
	Tails *tail.Tails
	// MayVanish reports whether a failover may lose events of a topic that were answered OK.
	// Readers get these only once the log shows them. nil: no topic's.
	MayVanish func(topic string) bool
	// Signal tells the other sidecars on the log. It must not block.
	Signal func(eventlog.Hint)
}

// Appended tells of one append to a partition. It leaves out events that were stored in another
// partition.
func (n *Notifier) Appended(topic string, partition int, recs []*eventlog.Record, outs []eventlog.Outcome) {
	var stored []*eventlog.Record
	head, unknown := uint64(0), false
	for i, out := range outs {
		var unmet *eventlog.ConcernError
		switch {
		case errors.Is(out.Err, eventlog.ErrUnavailable), errors.As(out.Err, &unmet):
			unknown = true
		case isNew(out) && out.Partition == partition:
			if stored == nil {
				stored = make([]*eventlog.Record, 0, len(recs))
			}
			stored = append(stored, recs[i])
			head = max(head, out.Seq)
		}
	}
	if len(stored) > 0 {
		n.wake(topic, partition, stored)
	}
	if unknown {
		head = 0 // only the log knows which of them it has
	}
	if unknown || len(stored) > 0 {
		n.signal(topic, partition, head)
	}
}

// isNew reports whether an append has made an event readable.
func isNew(out eventlog.Outcome) bool {
	return out.Err == nil && !out.Duplicate && !out.Spooled && out.DeliverAt == 0
}

// Stored tells of events that one partition now has, in the order of their seqs.
func (n *Notifier) Stored(topic string, partition int, recs []*eventlog.Record) {
	n.wake(topic, partition, recs)
	n.signal(topic, partition, recs[len(recs)-1].Seq)
}

// Heard tells that a partition has events up to head, which the log alone may show.
func (n *Notifier) Heard(topic string, partition int, head uint64) {
	if n.Tails != nil {
		n.Tails.Heard(topic, partition, head)
	}
	n.signal(topic, partition, head)
}

func (n *Notifier) wake(topic string, partition int, stored []*eventlog.Record) {
	switch {
	case n.Tails == nil:
	case n.MayVanish != nil && n.MayVanish(topic):
		n.Tails.Heard(topic, partition, stored[len(stored)-1].Seq)
	default:
		n.Tails.Appended(topic, partition, stored)
	}
}

func (n *Notifier) signal(topic string, partition int, head uint64) {
	if n.Signal != nil {
		n.Signal(eventlog.Hint{Topic: topic, Partition: partition, Head: head})
	}
}
