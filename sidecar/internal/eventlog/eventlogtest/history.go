package eventlogtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// testHistory runs several writers and readers at once, with random batches of a few ids on shared
// partitions. It records all answers and checks them against the promises.
func testHistory(t *testing.T, s *suite) {
	const (
		partitions = 2
		writers    = 4
		batches    = 25
		pool       = 150 // ids: few enough to collide, enough for new events until the end
	)
	topic := s.topic(t, partitions)
	var writing, reading sync.WaitGroup
	told := make([][]answer, writers)
	for w := range writers {
		writing.Go(func() { told[w] = s.write(t, topic, w, batches, partitions, pool) })
	}
	done := make(chan struct{})
	tails := make([][]*eventlog.Record, 2*partitions)
	for i := range tails {
		reading.Go(func() { tails[i] = s.tail(t, topic, i%partitions, i/partitions, done) })
	}
	writing.Wait()
	close(done)
	reading.Wait()
	if t.Failed() {
		return
	}

	s.reopen(t)
	stored := map[string]*eventlog.Record{}
	for p := range partitions {
		events := s.readAll(t, topic, p)
		for i, e := range events {
			if i > 0 && e.Seq <= events[i-1].Seq {
				t.Errorf("partition %d: seq %d behind seq %d", p, e.Seq, events[i-1].Seq)
			}
			if stored[e.ID] != nil {
				t.Errorf("id %q is stored twice", e.ID)
			}
			stored[e.ID] = e
		}
		for i := p; i < len(tails); i += partitions {
			if !slices.Equal(seqs(tails[i]), seqs(events)) {
				t.Errorf("a reader of partition %d saw seqs %v; it has %v", p, seqs(tails[i]), seqs(events))
			}
		}
	}
	checkAnswers(t, slices.Concat(told...), stored)
}

// answer is one event of one append, and its outcome.
type answer struct {
	record    *eventlog.Record
	partition int
	outcome   eventlog.Outcome
}

func (s *suite) write(t *testing.T, topic string, writer, batches, partitions, pool int) []answer {
	rng := rand.New(rand.NewPCG(1, uint64(writer)))
	var told []answer
	for range batches {
		partition := rng.IntN(partitions)
		batch := make([]*eventlog.Record, 1+rng.IntN(6))
		for i := range batch {
			batch[i] = Event(fmt.Sprintf("id-%d", rng.IntN(pool)), At(start+rng.Int64N(5)), Payload(fmt.Sprint(rng.IntN(3))))
		}
		out := s.append(t, topic, partition, batch...)
		var last uint64
		for i, o := range out {
			told = append(told, answer{batch[i], partition, o})
			if o.Err != nil || o.Duplicate {
				continue
			}
			if o.Seq <= last {
				t.Errorf("a batch was given seq %d behind %d", o.Seq, last)
			}
			last = o.Seq
		}
		// The next read finds every event that was answered.
		at := out[0]
		if at.Err != nil {
			continue
		}
		events, err := s.log.Read(t.Context(), topic, at.Partition, at.Seq, eventlog.Bounds{Events: 1})
		if err != nil || len(events) != 1 || events[0].Seq != at.Seq || events[0].ID != batch[0].ID {
			t.Errorf("after %+v for %q a read finds %q, %v", at, batch[0].ID, ids(events), err)
		}
	}
	return told
}

// tail reads until the writers are done, and then to the end. Readers use pages of different sizes.
func (s *suite) tail(t *testing.T, topic string, partition, reader int, done <-chan struct{}) []*eventlog.Record {
	var seen []*eventlog.Record
	next := uint64(1)
	for last := false; ; {
		events, err := s.log.Read(t.Context(), topic, partition, next, eventlog.Bounds{Events: 1 + 9*reader})
		if err != nil {
			t.Errorf("Read: %v", err)
			return nil
		}
		if len(events) > 0 {
			seen = append(seen, events...)
			next = events[len(events)-1].Seq + 1
			continue
		}
		if last {
			return seen
		}
		select {
		case <-done:
			last = true
		default:
		}
	}
}

// checkAnswers: exactly one append stored each stored event, at the place in its outcome. The other
// appends of the id got the place of that event.
func checkAnswers(t *testing.T, told []answer, stored map[string]*eventlog.Record) {
	t.Helper()
	winners := map[string]int{}
	for _, a := range told {
		e := stored[a.record.ID]
		if e == nil {
			t.Errorf("%+v for id %q, which is not stored", a.outcome, a.record.ID)
			continue
		}
		same := codec.SameContent(&e.Event, &a.record.Event)
		switch {
		case a.outcome.Err != nil:
			conflictAt(t, a.outcome, e.ID, e.Seq)
			if same {
				t.Errorf("id %q: a conflict between the same contents", e.ID)
			}
		case !same:
			t.Errorf("id %q: %+v for another content than the stored one", e.ID, a.outcome)
		case a.outcome.Partition != e.Partition || a.outcome.Seq != e.Seq || a.outcome.TS != e.TS:
			t.Errorf("id %q: told %+v; stored at partition %d, seq %d, ts %d", e.ID, a.outcome, e.Partition, e.Seq, e.TS)
		case !a.outcome.Duplicate:
			winners[e.ID]++
			if a.partition != e.Partition {
				t.Errorf("id %q: appended to partition %d, stored in %d", e.ID, a.partition, e.Partition)
			}
		}
	}
	for id := range stored {
		if winners[id] != 1 {
			t.Errorf("id %q was stored by %d appends", id, winners[id])
		}
	}
}
