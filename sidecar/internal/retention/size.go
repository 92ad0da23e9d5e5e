package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

const (
	// sizePage bounds the bytes that one step of counting reads.
	sizePage = 1 << 20
	// sizeParts is the least number of pieces in which the bytes of a topic are counted: a topic
	// loses at most one piece more than necessary.
	sizeParts = 256
)

// sizing knows how many bytes a topic holds, by wire.Event.Size. It reads the log once from its
// earliest event on, and the new events in each round. Another sidecar that becomes the topic's
// sweeper counts again.
type sizing struct {
	parts []partSizing
	bytes int64    // of all pieces
	upTo  []uint64 // by partition: the highest seq to remove
	// stale says that compaction has removed counted events.
	stale bool
}

type partSizing struct {
	next   uint64 // to be counted
	head   uint64 // as of this round
	pieces []piece
}

// piece is a run of events of a partition.
type piece struct {
	last       uint64
	acceptedAt int64 // of the last one
	bytes      int64
}

// start prepares a round, and forgets events that were removed meanwhile. A topic that was deleted
// and made again is counted from its start.
func (z *sizing) start(ctx context.Context, log Counted, topic string) error {
	extents, err := log.Extents(ctx, topic)
	if err != nil {
		return err
	}
	for p, e := range extents {
		if len(z.parts) != len(extents) || e.Head+1 < z.parts[p].next {
			z.reset(len(extents))
		}
	}
	for p, e := range extents {
		part := &z.parts[p]
		for len(part.pieces) > 0 && part.pieces[0].last < e.First {
			z.drop(p)
		}
		part.next, part.head = max(part.next, e.First), e.Head
	}
	return nil
}

func (z *sizing) reset(partitions int) {
	*z = sizing{parts: make([]partSizing, partitions), upTo: make([]uint64, partitions)}
}

// drop forgets the oldest piece of a partition.
func (z *sizing) drop(p int) {
	part := &z.parts[p]
	z.bytes -= part.pieces[0].bytes
	part.pieces = part.pieces[1:]
}

// count counts the next page, and reports whether there is more.
func (z *sizing) count(ctx context.Context, log Counted, topic string, most int64, events int) (more bool, err error) {
	for p := range z.parts {
		part := &z.parts[p]
		if part.next > part.head {
			continue
		}
		page, err := log.Read(ctx, topic, p, part.next, eventlog.Bounds{Events: events, Bytes: sizePage})
		if err != nil {
			return false, fmt.Errorf("count the bytes of partition %d: %w", p, err)
		}
		if len(page) == 0 {
			part.head = 0 // the rest cannot be read before the next round
			continue
		}
		for _, r := range page {
			part.add(r, most/sizeParts)
			z.bytes += int64(r.Size())
		}
		part.next = page[len(page)-1].Seq + 1
		return true, nil
	}
	return false, nil
}

func (p *partSizing) add(r *eventlog.Record, most int64) {
	n := len(p.pieces)
	if size := int64(r.Size()); n == 0 || p.pieces[n-1].bytes+size > most {
		p.pieces = append(p.pieces, piece{})
		n++
	}
	last := &p.pieces[n-1]
	last.last, last.acceptedAt = r.Seq, r.AcceptedAt
	last.bytes += int64(r.Size())
}

// trim chooses the oldest events to remove, so that the topic holds at most that many bytes.
func (z *sizing) trim(most int64) {
	for z.bytes > most {
		oldest := -1
		for p := range z.parts {
			if len(z.parts[p].pieces) > 0 && (oldest < 0 || z.parts[p].pieces[0].acceptedAt < z.parts[oldest].pieces[0].acceptedAt) {
				oldest = p
			}
		}
		if oldest < 0 {
			return
		}
		z.upTo[oldest] = z.parts[oldest].pieces[0].last
		z.drop(oldest)
	}
}

// sizeStep counts another page of a topic's bytes, and reports whether there is more to count. The
// result is in z.
func (s *Sweeper) sizeStep(ctx context.Context, topic string, z *sizing, first bool) (more bool, err error) {
	most := s.policy(topic).Retention.MaxBytes
	if most == 0 {
		*z = sizing{}
		return false, nil
	}
	if first {
		if err := z.start(ctx, s.Log, topic); err != nil {
			return false, err
		}
	}
	if more, err = z.count(ctx, s.Log, topic, most, s.Batch); more || err != nil {
		return more, err
	}
	if z.bytes > most && z.stale {
		// Compaction may have removed enough.
		z.reset(len(z.parts))
		return true, z.start(ctx, s.Log, topic)
	}
	z.trim(most)
	return false, nil
}

// sweepJob is one round of sweeping a topic: it counts the bytes, and removes expired events and
// those beyond the bound.
func (s *Sweeper) sweepJob(ctx context.Context, topic string, z *sizing) job {
	first, sized := true, false
	return job{"topic " + topic, func(now time.Time) (worked, more bool, err error) {
		if !sized {
			more, err := s.sizeStep(ctx, topic, z, first)
			if first = false; more || err != nil {
				return more, more, err
			}
			sized = true
		}
		rules := Rules(s.policy(topic))
		rules.UpTo = z.upTo
		removed, more, err := s.Log.Sweep(ctx, topic, rules, now.UnixMilli(), s.Batch)
		return removed > 0, more, err
	}}
}
