package bubbletest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// makeLone makes the log the lone writer of t, by reservations for the seqs up to loneFrom-1.
func makeLone(t *testing.T, l *mongolog.Log) {
	t.Helper()
	withTopic(t, l)
	for seq := 1; seq < loneFrom; seq++ {
		stored(t, l, eventlogtest.Events(fmt.Sprint("before", seq), 1), uint64(seq))
	}
}

// loneFrom is the first seq of a lone writer: the reservation before it makes the claim.
const loneFrom = mongolog.DefaultLoneAfter + 2

// wantLone checks whether the head of t has a claim.
func wantLone(t *testing.T, set *mongomodel.Set, want bool) {
	t.Helper()
	withEvents(t, set, func(c *mongo.Collection) error {
		head, err := c.FindOne(t.Context(), bson.D{{Key: "partition", Value: -1}}).Raw()
		if _, missing := head.LookupErr("lone"); want != (missing == nil) {
			t.Errorf("there is a claim: %t; want %t", !want, want)
		}
		return err
	})
}

// withLone runs a test in a bubble, on a log that is the lone writer of t.
func withLone(t *testing.T, test func(t *testing.T, s *lateStore)) {
	t.Helper()
	withLateStore(t, func(t *testing.T, s *lateStore) {
		makeLone(t, s.Log)
		wantLone(t, s.set, true)
		test(t, s)
	})
}

// wantCommands checks how many commands about events the log sends during do.
func (s *lateStore) wantCommands(t *testing.T, want int64, do func()) {
	t.Helper()
	before := s.commands.Load()
	do()
	if n := s.commands.Load() - before; n != want {
		t.Errorf("%d commands; want %d", n, want)
	}
}

// A lone writer appends a batch with one command, and everybody sees at once what it has stored.
func TestALoneWriter(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		s.wantCommands(t, 2, func() {
			stored(t, s.Log, eventlogtest.Events("lone", 3), 5, 6, 7)
			stored(t, s.Log, eventlogtest.Events("more", 1), 8)
		})
		for _, l := range []*mongolog.Log{s.Log, open(t, s.set, mongolog.Options{})} {
			backlog, err := l.Backlog(t.Context(), []eventlog.Hint{{Topic: "t", Head: 3}, {Topic: "t", Head: 8}})
			if err != nil || backlog[0].Head != 8 || backlog[1].Head != 8 {
				t.Errorf("Backlog = %+v, %v", backlog, err)
			}
			wantExtent(t, l, eventlog.Extent{First: 1, Head: 8})
			wantNext(t, l, 5, 5, 6, 7, 8)
			wantNext(t, l, 1, 1, 2, 3, 4, 5, 6, 7, 8)
			latest, err := l.Seek(t.Context(), "t", eventlog.Position{From: wire.FromLatest})
			if err != nil || latest[0] != 9 {
				t.Errorf("the latest position is %v, %v", latest, err)
			}
			eventlogtest.WantNoPosition(t, l, "t", 9)
		}
	})
}

// A lone writer tells the head what it has stored, now and then.
func TestALoneWriterTellsTheHead(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		list, seqs := eventlogtest.Events("lone", 120, eventlogtest.At(firstTS*2)), make([]uint64, 120)
		for i := range list {
			seqs[i] = uint64(loneFrom + i)
		}
		list[7].TS = firstTS / 2
		s.wantCommands(t, 1, func() { stored(t, s.Log, list, seqs...) })
		time.Sleep(2 * time.Minute)
		last := seqs[len(seqs)-1]
		s.wantCommands(t, 2, func() { stored(t, s.Log, eventlogtest.Events("then", 1), last+1) })
		s.wantCommands(t, 1, func() { stored(t, s.Log, eventlogtest.Events("more", 1), last+2) })
		withEvents(t, s.set, func(c *mongo.Collection) error {
			var head struct {
				Count, Bytes int64
				MaxTS        int64            `bson:"max_ts"`
				MinTS        map[string]int64 `bson:"min_ts"`
			}
			err := c.FindOne(t.Context(), bson.D{{Key: "partition", Value: -1}}).Decode(&head)
			if head.Count != int64(last+1) || head.Bytes < 100*head.Count || head.MaxTS != firstTS*2 || head.MinTS["0"] != firstTS/2 {
				t.Errorf("the head says %+v", head)
			}
			return err
		})
		holdings, err := s.Holdings(t.Context(), []string{"t"})
		if err != nil || holdings[0].Events != int64(last+2) || holdings[0].Extents[0].Head != last+2 {
			t.Errorf("Holdings = %+v, %v", holdings, err)
		}
	})
}

// A lone writer that stops hands its claim back by one write: the next writer makes a reservation, and no voids.
func TestALoneWriterHandsItsClaimBack(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		var commands atomic.Int64
		next := open(t, s.set, mongolog.Options{Monitor: counting(events, &commands)})
		withTopic(t, next)
		stored(t, s.Log, eventlogtest.Events("lone", 2, eventlogtest.At(firstTS*2)), 5, 6)
		s.wantCommands(t, 1, func() { require.NoError(t, s.Close()) })
		wantLone(t, s.set, false)
		before := commands.Load()
		stored(t, next, eventlogtest.Events("next", 1), 7)
		if n := commands.Load() - before; n != 2 {
			t.Errorf("the next writer sent %d commands; want 2", n)
		}
		wantNext(t, next, 4, 4, 5, 6, 7)
		wantExtent(t, next, eventlog.Extent{First: 1, Head: 7})
		withEvents(t, s.set, func(c *mongo.Collection) error {
			head, err := c.FindOne(t.Context(), bson.D{{Key: "partition", Value: -1}}).Raw()
			if count, ts := head.Lookup("count").AsInt64(), head.Lookup("max_ts").AsInt64(); count != 7 || ts != firstTS*2 {
				t.Errorf("the head says %v", head)
			}
			return err
		})
	})
}

// A claim of which a write has gone wrong is not handed back: that write may come late.
func TestAClaimIsNotHandedBackWhileAWriteMayComeLate(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		s.loseAnswer("insert", events)
		if out := s.Append(t.Context(), "t", 0, eventlogtest.Events("late", 1))[0]; out.Err == nil {
			t.Errorf("the append has the outcome %+v", out)
		}
		s.losing.Store(false)
		require.NoError(t, s.Close())
		wantLone(t, s.set, true)
		next := open(t, s.set, mongolog.Options{})
		stored(t, next, eventlogtest.Events("next", 1), 6)
		time.Sleep(2 * lateness)
		wantNext(t, next, 4, 4, 6)
	})
}

// A lone writer that stops leaves the claim of a later one alone.
func TestTheClaimOfALaterLoneWriterStays(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		rival := open(t, s.set, mongolog.Options{})
		for seq := uint64(loneFrom + 1); seq < 2*loneFrom+1; seq++ {
			stored(t, rival, eventlogtest.Events(fmt.Sprint("rival", seq), 1), seq)
		}
		wantLone(t, s.set, true)
		require.NoError(t, s.Close())
		wantLone(t, s.set, true)
	})
}

// Another sidecar appends: it ends the claim, no reader waits, and no seq is below an answered one.
func TestTheClaimEndsWithARival(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		stored(t, s.Log, eventlogtest.Events("lone", 2), 5, 6)
		rival := open(t, s.set, mongolog.Options{})
		began := time.Now()
		stored(t, rival, eventlogtest.Events("rival", 1), 8)
		wantLone(t, s.set, false)
		stored(t, s.Log, eventlogtest.Events("again", 1), 9)
		stored(t, rival, eventlogtest.Events("rival-again", 1), 10)
		wantNext(t, s.Log, 5, 5, 6, 8, 9, 10)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		wantExtent(t, rival, eventlog.Extent{First: 1, Head: 10})
		for seq := uint64(11); seq <= 15; seq++ { // and alone again
			stored(t, s.Log, eventlogtest.Events(fmt.Sprint("alone", seq), 1), seq)
		}
		wantLone(t, s.set, true)
		s.wantCommands(t, 1, func() {
			stored(t, s.Log, eventlogtest.Events("lone-again", 1), 16)
		})
	})
}

// A lone writer dies, or waits for days. Others go on at once.
func TestNobodyWaitsForALoneWriter(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		stored(t, s.Log, eventlogtest.Events("lone", 1), 5)
		began := time.Now()
		rival := open(t, s.set, mongolog.Options{})
		stored(t, rival, eventlogtest.Events("rival", 1), 7)
		wantNext(t, rival, 1, 1, 2, 3, 4, 5, 7)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Second) // it raises the watermark
		require.NoError(t, rival.Close())
		time.Sleep(25 * time.Hour) // the void is deleted
		stored(t, s.Log, eventlogtest.Events("again", 1), 8)
		wantNext(t, s.Log, 5, 5, 7, 8)
	})
}

// A lone writer that has not appended for a while makes sure of its claim: nobody else has ended it.
func TestALoneWriterThatWasQuiet(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		stored(t, s.Log, eventlogtest.Events("lone", 1), 5)
		time.Sleep(2 * time.Hour)
		for i, want := range []int64{2, 1} {
			s.wantCommands(t, want, func() {
				stored(t, s.Log, eventlogtest.Events(fmt.Sprint("then", i), 1), uint64(6+i))
			})
		}
	})
}

// The insert of a lone writer that has given up is executed once its claim has ended, or it is
// executed at once and its answer is lost: it is stored once, above what was answered before.
func TestAnUnansweredInsertOfALoneWriter(t *testing.T) {
	for name, rivals := range map[string]bool{"a rival comes": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			withLone(t, func(t *testing.T, s *lateStore) {
				late := eventlogtest.Events("late", 3)
				s.loseAnswer("insert", events)
				if o := s.Append(t.Context(), "t", 0, late)[0]; !errors.Is(o.Err, eventlog.ErrUnavailable) {
					t.Errorf("the outcome is %+v", o)
				}
				s.losing.Store(false)
				next := s.Log
				if rivals {
					next = open(t, s.set, mongolog.Options{})
				}
				began := time.Now()
				stored(t, next, eventlogtest.Events("next", 1), 6)
				wantNext(t, next, 5, 6)
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %v", took)
				}
				time.Sleep(2 * lateness)
				if _, err := next.Lookup(t.Context(), "t", late[0].ID); !errors.Is(err, eventlog.ErrNotFound) {
					t.Errorf("what came late was stored: %v", err)
				}
				stored(t, s.Log, late, 7, 8, 9)
				wantNext(t, next, 5, 6, 7, 8, 9)
			})
		})
	}
}

// The claim ends while the answer to an insert is on its way. What is stored is answered as such, and
// the rest is stored above what the rival has.
func TestTheClaimEndsDuringAnInsert(t *testing.T) {
	for _, tc := range []struct {
		name        string
		halt        int // after so many events; 0: after all
		want, rival []uint64
	}{{"stored", 0, []uint64{5, 6, 7}, []uint64{9}}, {"stored in part", 2, []uint64{5, 6, 9}, []uint64{8}}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var losing atomic.Bool
				set := mongomodel.New(mongomodel.Options{Polling: true, Fault: func(r mongomodel.Request) mongomodel.Fault {
					lost := r.Command == "insert" && r.Collection == events && losing.CompareAndSwap(true, false)
					if !lost {
						return mongomodel.Fault{}
					}
					return mongomodel.Fault{Halt: tc.halt, LoseAnswer: true, Silent: true}
				}})
				t.Cleanup(set.Close)
				l, rival := open(t, set, mongolog.Options{}), open(t, set, mongolog.Options{})
				makeLone(t, l)
				losing.Store(true)
				time.AfterFunc(time.Second, func() { stored(t, rival, eventlogtest.Events("rival", 1), tc.rival...) })
				stored(t, l, eventlogtest.Events("lone", 3), tc.want...)
			})
		})
	}
}

// A rival ends the claim, and its own event never comes. The lone writer stores nothing in that hole,
// below what others were answered since: it meets the void that ended its claim with an event, or with
// a void in place of a repeated publish.
func TestALoneWriterKeepsOutOfHoles(t *testing.T) {
	for _, repeats := range []bool{false, true} {
		t.Run(fmt.Sprintf("it meets the void with one of its own: %t", repeats), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asking atomic.Bool
				var rival *mongolog.Log
				others := func() {
					if o := rival.Append(t.Context(), "t", 0, eventlogtest.Events("lost", 1))[0]; o.Err == nil {
						t.Errorf("%+v", o)
					}
					stored(t, rival, eventlogtest.Events("later", 1), 8)
				}
				set := mongomodel.New(mongomodel.Options{Polling: true, Fault: func(r mongomodel.Request) (f mongomodel.Fault) {
					if r.Command == "insert" && r.Documents[0].Lookup("id").String() == `"lost-000"` {
						f.LoseRequest = true
					} else if r.Command == "find" && r.Collection == events && asking.CompareAndSwap(true, false) {
						f.Delay = 4 * time.Second
						time.AfterFunc(0, others)
					}
					return f
				}})
				t.Cleanup(set.Close)
				l := open(t, set, mongolog.Options{Timeout: time.Minute})
				rival = open(t, set, mongolog.Options{Timeout: time.Second})
				makeLone(t, l)
				stored(t, l, eventlogtest.Events("lone", 1), 5)
				batch := []*eventlog.Record{eventlogtest.Event("last")}
				if asking.Store(repeats); repeats {
					batch = append(eventlogtest.Events("lone", 1), batch...)
				} else {
					others()
				}
				outs := l.Append(t.Context(), "t", 0, batch)
				if last := outs[len(outs)-1]; last.Seq != 9 {
					t.Errorf("%+v; want the last at 9", outs)
				}
			})
		})
	}
}

// The answer to the reservation that makes the claim is lost. Its seqs are learned, and the claim is
// nobody's.
func TestTheAnswerToAClaimIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var losing atomic.Bool
		set := mongomodel.New(mongomodel.Options{Polling: true, Fault: func(r mongomodel.Request) mongomodel.Fault {
			lost := r.Command == "findAndModify" && losing.CompareAndSwap(true, false)
			return mongomodel.Fault{LoseAnswer: lost}
		}})
		t.Cleanup(set.Close)
		l := open(t, set, mongolog.Options{})
		withTopic(t, l)
		for seq := uint64(1); seq < loneFrom; seq++ {
			losing.Store(seq == loneFrom-1)
			stored(t, l, eventlogtest.Events(fmt.Sprint("before", seq), 1), seq)
		}
		wantLone(t, set, true)
		began := time.Now()
		stored(t, l, eventlogtest.Events("then", 2), 6, 7)
		wantNext(t, l, 4, 4, 6, 7)
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Repeated publishes put voids among the events of a lone writer, and it remains one.
func TestRepeatedPublishesOfALoneWriter(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		first := eventlogtest.Events("lone", 2)
		stored(t, s.Log, first, 5, 6)
		mixed := append(eventlogtest.Events("new", 1), first[0], eventlogtest.Event("last"))
		outs := s.Append(t.Context(), "t", 0, mixed)
		if outs[0].Seq != 7 || outs[1].Seq != 5 || !outs[1].Duplicate || outs[2].Seq != 9 {
			t.Errorf("%+v", outs)
		}
		s.wantCommands(t, 1, func() {
			stored(t, s.Log, eventlogtest.Events("more", 1), 10)
		})
		wantNext(t, s.Log, 5, 5, 6, 7, 9, 10)
	})
}

// A scheduled event gets a reserved seq, and the lone writer remains one.
func TestALoneWriterReleasesScheduledEvents(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		stored(t, s.Log, eventlogtest.Events("lone", 1), 5)
		later := []*eventlog.Record{eventlogtest.Event("later", eventlogtest.Due(time.Now().Add(time.Minute).UnixMilli()))}
		require.NoError(t, s.Append(t.Context(), "t", 0, later)[0].Err)
		due, _, err := s.Due(t.Context(), nil, nil, time.Now().Add(time.Hour).UnixMilli(), 10)
		require.NoError(t, err)
		if o := s.Release(t.Context(), "t", due, due[0].DeliverAt); o[0].Err != nil || o[0].Seq != 6 {
			t.Errorf("Release = %+v", o)
		}
		wantLone(t, s.set, true)
		s.wantCommands(t, 1, func() {
			stored(t, s.Log, eventlogtest.Events("more", 1), 7)
		})
		rival := open(t, s.set, mongolog.Options{})
		stored(t, rival, eventlogtest.Events("rival", 1), 9)
		stored(t, s.Log, eventlogtest.Events("again", 1), 10)
		wantNext(t, rival, 5, 5, 6, 7, 9, 10)
	})
}

// A reservation in one partition leaves the others as they are.
func TestALoneWriterReservesInOnePartition(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		_, err := s.EnsureTopic(t.Context(), "t", 2)
		require.NoError(t, err)
		place := func(p int, want uint64, id string, options ...func(*eventlog.Record)) {
			t.Helper()
			if o := s.Append(t.Context(), "t", p, []*eventlog.Record{eventlogtest.Event(id, options...)})[0]; o.Err != nil || o.Seq != want {
				t.Errorf("%s: %+v; want seq %d", id, o, want)
			}
		}
		for seq := uint64(1); seq <= loneFrom; seq++ {
			place(1, seq, fmt.Sprint("one", seq))
		}
		place(0, 1, "zero")
		id := "later"
		for eventlog.PartitionOf("", id, 2) != 0 {
			id += "s"
		}
		place(0, 0, id, eventlogtest.Due(time.Now().Add(time.Minute).UnixMilli()))
		due, _, err := s.Due(t.Context(), nil, nil, time.Now().Add(time.Hour).UnixMilli(), 10)
		require.NoError(t, err)
		if o := s.Release(t.Context(), "t", due, due[0].DeliverAt); o[0].Err != nil || o[0].Seq != 2 {
			t.Errorf("Release = %+v", o)
		}
		s.wantCommands(t, 2, func() {
			place(1, loneFrom+1, "then")
			place(0, 3, "last")
		})
	})
}

// A topic is deleted while it has a lone writer, whose insert comes late. Nothing of it comes back,
// and what is appended to the next generation is above all that was there.
func TestATopicWithALoneWriterIsDeleted(t *testing.T) {
	for name, lost := range map[string]bool{"an insert comes late": true, "the writer goes on": false} {
		t.Run(name, func(t *testing.T) {
			withLone(t, func(t *testing.T, s *lateStore) {
				stored(t, s.Log, eventlogtest.Events("lone", 1), 5)
				if lost {
					s.late(t, "insert", events, func(ctx context.Context) error {
						return s.Append(ctx, "t", 0, eventlogtest.Events("late", 1))[0].Err
					})
				}
				other := open(t, s.set, mongolog.Options{})
				require.NoError(t, other.DeleteTopic(t.Context(), "t"))
				withTopic(t, other)
				wantLone(t, s.set, false)
				stored(t, other, eventlogtest.Events("new", 1), 7)
				time.Sleep(2 * lateness)
				stored(t, s.Log, eventlogtest.Events("late", 1), 8)
				wantNext(t, s.Log, 1, 7, 8)
				wantExtent(t, other, eventlog.Extent{First: 7, Head: 8, Removed: 5})
			})
		})
	}
}

// Retention removes what a lone writer has stored, also where nobody reads.
func TestRetentionOfALoneWriter(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		stored(t, s.Log, eventlogtest.Events("lone", 3), 5, 6, 7)
		now := eventlogtest.Event("").AcceptedAt + 1000
		sweep(t, s.Log, eventlog.Retention{TTLMS: 1, DedupeWindowMS: 1}, now, 7)
		stored(t, s.Log, eventlogtest.Events("more", 2), 8, 9)
		sweep(t, s.Log, eventlog.Retention{TTLMS: 1, DedupeWindowMS: 1}, now, 2)
		wantExtent(t, s.Log, eventlog.Extent{First: 10, Head: 9, Removed: 9})
		wantLone(t, s.set, true)
	})
}

// A rival ends the claim of a lone writer that appends all the time, and gets its turn.
func TestARivalOfABusyLoneWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Polling: true, Latencies: mongomodel.Measured})
		t.Cleanup(set.Close)
		l, rival := open(t, set, mongolog.Options{}), open(t, set, mongolog.Options{})
		makeLone(t, l)
		var busy sync.WaitGroup
		var over atomic.Bool
		for i := range 20 {
			busy.Go(func() {
				for n := 0; !over.Load(); n++ {
					if o := l.Append(t.Context(), "t", 0, eventlogtest.Events(fmt.Sprintf("%d-%d", i, n), 10))[0]; o.Err != nil {
						t.Error(o.Err)
						return
					}
				}
			})
		}
		time.Sleep(time.Second)
		wantLone(t, set, true)
		began := time.Now()
		if o := rival.Append(t.Context(), "t", 0, eventlogtest.Events("rival", 1))[0]; o.Err != nil {
			t.Error(o.Err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		over.Store(true)
		busy.Wait()
	})
}

// A primary steps down under a lone writer: its batch is stored once, in order.
func TestALoneWriterAndAStepdown(t *testing.T) {
	withLone(t, func(t *testing.T, s *lateStore) {
		stored(t, s.Log, eventlogtest.Events("lone", 1), 5)
		for i := range 3 {
			s.set.Lag(i, 4*time.Millisecond)
		}
		time.AfterFunc(2*time.Millisecond, func() { s.set.StepDown(0) })
		stored(t, s.Log, eventlogtest.Events("more", 3), 6, 7, 8)
		wantNext(t, s.Log, 5, 5, 6, 7, 8)
	})
}

// A topic at w: 1 has no lone writer, and no topic that gets this concern keeps one.
func TestNoLoneWriterAtW1(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		concern := "w:1"
		l := open(t, s.set, mongolog.Options{WriteConcern: func(string) string { return concern }})
		makeLone(t, l)
		wantLone(t, s.set, false)
		concern = "majority"
		for seq := uint64(5); seq <= 8; seq++ {
			stored(t, l, eventlogtest.Events(fmt.Sprint("a", seq), 1), seq)
		}
		wantLone(t, s.set, true)
		stored(t, l, eventlogtest.Events("lone", 1), 9)
		concern = "w:1"
		stored(t, l, eventlogtest.Events("b", 1), 11)
		wantLone(t, s.set, false)
		wantNext(t, l, 8, 8, 9, 11)
	})
}
