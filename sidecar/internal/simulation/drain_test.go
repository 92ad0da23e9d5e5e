package simulation

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/testkit"
)

// busyServer has work for each command and each document that is inserted, and does one thing after
// the other. A request that its client has given up waiting for takes as long as any other.
type busyServer struct {
	command, document time.Duration

	mu       sync.Mutex
	free     time.Time
	inserted int // documents
}

func (s *busyServer) meet(q mongomodel.Request) mongomodel.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, work := time.Now(), s.command
	if q.Command == "insert" {
		work += time.Duration(len(q.Documents)) * s.document
		s.inserted += len(q.Documents)
	}
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(work)
	return mongomodel.Fault{Delay: s.free.Sub(now)}
}

// TestDrainOfAFleet: a store was away for three minutes. Then its 20 sidecars, all back at once,
// drain their spools of 8 topics into it. The store is too slow for whole pages of all sidecars at
// once: it would execute most of them after their senders have given up. Before drains went by how
// long a page takes, 9,286 of 17,982 events were left 70 s after an outage at 1 ms a document, and
// at 4 ms all. With -short it is one of the two.
func TestDrainOfAFleet(t *testing.T) {
	type drain struct{ document, most time.Duration }
	for _, c := range testkit.Some(t, 2, []drain{{time.Millisecond, 40 * time.Second}, {4 * time.Millisecond, 4 * time.Minute}}) {
		t.Run(fmt.Sprintf("%v a document", c.document), func(t *testing.T) {
			t.Parallel()
			drainFleet(t, &busyServer{command: time.Millisecond, document: c.document}, c.most)
		})
	}
}

func drainFleet(t *testing.T, server *busyServer, most time.Duration) {
	const sidecars, topics = 20, 8
	const begins, away, after = 5 * time.Second, 3 * time.Minute, 10 * time.Second
	p := &plan{Seed: 1, Sidecars: sidecars, Members: 3, Measured: true, Lasts: ms((begins + away + after).Milliseconds())}
	for n := range topics {
		topic := fmt.Sprintf("t%d", n)
		p.Topics = append(p.Topics, topicPlan{Name: topic, Partitions: 8})
		for i := range sidecars {
			p.Publishers = append(p.Publishers, publisherPlan{Seed: uint64(sidecars*n + i), Topic: topic, Sidecars: []int{i}, Start: 1000,
				Every: 3200,
				Calls: 1000, Lasts: p.Lasts, Batch: 1, Keys: 64, Pipeline: 1000})
		}
	}
	p.Faults = []fault{{Kind: outage, At: ms(begins.Milliseconds()), For: ms(away.Milliseconds())}}
	synctest.Test(t, func(t *testing.T) {
		r := newRun(p)
		r.meter = server
		var watching sync.WaitGroup
		watching.Go(func() {
			time.Sleep(begins + away)
			spooled := r.spooled()
			for began := time.Now(); ; time.Sleep(time.Second) {
				left, took := r.spooled(), time.Since(began)
				if left > 0 && took < most {
					continue
				}
				t.Logf("%v after the outage %d of %d events are left, and %d documents were inserted", took, left, spooled, server.inserted)
				if left > 0 || spooled < 5000 || server.inserted > 2*spooled {
					t.Error("the store was given more than it can do, or too little")
				}
				return
			}
		})
		r.work()
		watching.Wait()
		report(t, p, r.finish())
	})
}

// spooled is how many events wait in the spools.
func (r *run) spooled() (n int) {
	for _, m := range r.machines {
		if p := m.process(); p != nil {
			n += p.spool.Stats().Events
		}
	}
	return n
}
