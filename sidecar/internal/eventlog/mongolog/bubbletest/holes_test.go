package bubbletest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/require"
)

// patience is how long a hole has to stand for readers to void it.
const patience = 5 * time.Second

// wantNext follows the partition of t from a seq on until there are events, which are at these
// seqs.
func wantNext(t *testing.T, l *mongolog.Log, from uint64, want ...uint64) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(100 * time.Millisecond) {
		found, err := l.Read(t.Context(), "t", 0, from, eventlog.Bounds{Events: 100})
		require.NoError(t, err)
		if len(found) == 0 {
			continue
		}
		var seqs []uint64
		for _, e := range found {
			seqs = append(seqs, e.Seq)
		}
		if !slices.Equal(seqs, want) {
			t.Errorf("from seq %d on there are %v; want %v", from, seqs, want)
		}
		return
	}
	t.Fatalf("nothing came at or above seq %d", from)
}

// wantExtent checks the extent of the partition of t. Holdings may count voids, but nothing behind them.
func wantExtent(t *testing.T, l *mongolog.Log, want eventlog.Extent) {
	t.Helper()
	got, err := l.Extents(t.Context(), "t")
	if err != nil || got[0] != want {
		t.Errorf("the partition holds %+v, %v; want %+v", got, err, want)
	}
	list, err := l.Holdings(t.Context(), []string{"t"})
	if head := list[0].Extents[0].Head; err != nil || head != want.Head && head != want.Head+want.Voids {
		t.Errorf("the list says %+v, %v; want %+v", list, err, want)
	}
}

// A sidecar reserves a seq and does not insert, or only much later. Readers go on after their
// patience. The void refuses the late insert, and the event gets another seq when it is appended
// again.
func TestALateInsertMeetsAVoid(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		withTopic(t, s.Log)
		stored(t, s.Log, eventlogtest.Events("before", 1), 1)
		late := eventlogtest.Events("late", 3)
		s.loseAnswer("insert", events)
		if o := s.Append(t.Context(), "t", 0, late)[0]; !errors.Is(o.Err, eventlog.ErrUnavailable) {
			t.Errorf("the outcome is %+v", o)
		}
		s.losing.Store(false)
		other := open(t, s.set, mongolog.Options{})
		stored(t, other, eventlogtest.Events("other", 1), 5)
		wantExtent(t, other, eventlog.Extent{First: 1, Head: 1, Hidden: 1})
		began := time.Now()
		wantNext(t, other, 2, 5)
		wantExtent(t, other, eventlog.Extent{First: 1, Head: 5})
		if took := time.Since(began); took < patience || took > 2*patience {
			t.Errorf("it waited %v; want a little more than %v", took, patience)
		}
		time.Sleep(2 * lateness) // the insert is executed
		if _, err := other.Lookup(t.Context(), "t", late[0].ID); !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("what came late was stored: %v", err)
		}
		next := other.Append(t.Context(), "t", 0, eventlogtest.Events("next", 1))[0].Seq
		stored(t, s.Log, eventlogtest.Events("late", 3), next+1, next+2, next+3)
		wantNext(t, other, 6, next, next+1, next+2, next+3)
	})
}

// reserve gives out seqs of the partition of t, to a sidecar that is killed before it inserts.
func reserve(t *testing.T, s *lateStore, seqs int) {
	t.Helper()
	withEvents(t, s.set, func(c *mongo.Collection) error {
		more := bson.D{{Key: "$inc", Value: bson.D{{Key: "head.0", Value: int64(seqs)}}}}
		_, err := c.UpdateOne(t.Context(), bson.D{{Key: "partition", Value: -1}}, more)
		return err
	})
}

// Seqs of sidecars that were killed are positions as good as those of events, before and after
// retention, and when the documents at these seqs are gone. Retention removes the events at 4, 5 and 8.
func TestPositionsAtVoids(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		withTopic(t, s.Log)
		wantExtent(t, s.Log, eventlog.Extent{First: 1}) // makes the head
		reserve(t, s, 3)
		stored(t, s.Log, eventlogtest.Events("a", 2), 4, 5)
		reserve(t, s, 2)
		stored(t, s.Log, eventlogtest.Events("b", 1), 8)
		wantNext(t, s.Log, 1, 4, 5, 8)
		reserve(t, s, 2)
		eventlogtest.WantNoPosition(t, s.Log, "t", 9) // its event may be on its way
		time.Sleep(2 * patience)
		for _, removed := range []uint64{0, 4, 5, 8} {
			keep := eventlog.Retention{UpTo: []uint64{removed}, DedupeWindowMS: 1}
			_, _, err := s.Sweep(t.Context(), "t", keep, time.Now().UnixMilli(), 10)
			require.NoError(t, err)
			logs := []*mongolog.Log{s.Log, open(t, s.set, mongolog.Options{})}
			for range 2 {
				for _, l := range logs {
					for seq := range uint64(11) {
						if seq < removed {
							eventlogtest.WantTooOld(t, l, "t", seq)
						} else {
							eventlogtest.WantPosition(t, l, "t", seq)
						}
					}
					eventlogtest.WantNoPosition(t, l, "t", 11)
				}
				withEvents(t, s.set, func(c *mongo.Collection) error { // voids and stubs expire
					_, err := c.DeleteMany(t.Context(), bson.D{{Key: "gone", Value: true}})
					return err
				})
			}
		}
	})
}

// Many sidecars are killed at one time, between their reservations and their inserts, and others go
// on. Readers wait once, and not for each of them.
func TestManyReservationsOfTheDead(t *testing.T) {
	for name, c := range map[string]struct{ times, seqs int }{
		"holes between events":           {20, 3},
		"more than one insert has voids": {1, 3500},
	} {
		t.Run(name, func(t *testing.T) {
			withLateStore(t, func(t *testing.T, s *lateStore) {
				withTopic(t, s.Log)
				stored(t, s.Log, eventlogtest.Events("before", 1), 1)
				want := []uint64{1}
				for i := range c.times {
					reserve(t, s, c.seqs)
					seq := uint64(1 + (i+1)*(c.seqs+1))
					stored(t, s.Log, eventlogtest.Events(fmt.Sprintf("alive-%d", i), 1), seq)
					want = append(want, seq)
				}
				began := time.Now()
				wantNext(t, s.Log, 1, want[0])
				wantNext(t, s.Log, 2, want[1:]...)
				if took := time.Since(began); took < patience || took > 2*patience {
					t.Errorf("it waited %v; want a little more than %v", took, patience)
				}
			})
		})
	}
}

// A process that was stopped between its reservation and its insert goes on after hours, on a store
// that others have read on.
func TestASidecarIsStoppedBeforeItInserts(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		var stopped func() // before the next insert is sent
		a := open(t, s.set, mongolog.Options{Monitor: &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if c, _ := e.Command.Lookup("insert").StringValueOK(); c == events && stopped != nil {
				f := stopped
				stopped = nil
				f()
			}
		}}})
		withTopic(t, a)
		stored(t, a, eventlogtest.Events("before", 1), 1)
		stopped = func() {
			stored(t, s.Log, eventlogtest.Events("other", 1), 4)
			wantNext(t, s.Log, 2, 4)
			time.Sleep(2 * time.Hour)
		}
		if o := a.Append(t.Context(), "t", 0, eventlogtest.Events("late", 2))[0]; !errors.Is(o.Err, eventlog.ErrUnavailable) {
			t.Errorf("the outcome is %+v", o)
		}
		stored(t, a, eventlogtest.Events("late", 2), 5, 6)
		wantNext(t, s.Log, 5, 5, 6)
	})
}

// A living writer whose seqs were voided asks readers for more patience, which they give back when
// nothing needs it.
func TestVoidedWritersAskForPatience(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		slow := open(t, s.set, mongolog.Options{Timeout: 2 * lateness})
		withTopic(t, slow)
		stored(t, slow, eventlogtest.Events("before", 1), 1)
		wantNext(t, s.Log, 1, 1)
		s.silent = true
		s.loseAnswer("insert", events)
		done := make(chan []eventlog.Outcome)
		go func() { done <- slow.Append(t.Context(), "t", 0, eventlogtest.Events("slow", 2)) }()
		time.Sleep(time.Second)
		s.losing.Store(false)
		stored(t, s.Log, eventlogtest.Events("other", 1), 4)
		wantNext(t, s.Log, 2, 4)
		for _, o := range <-done {
			if o.Err != nil || o.Seq <= 4 {
				t.Errorf("the slow one: %+v", o)
			}
		}
		asked := func() time.Duration {
			var head struct {
				Patience map[string]int64 `bson:"patience"`
			}
			withEvents(t, s.set, func(c *mongo.Collection) error {
				return c.FindOne(t.Context(), bson.D{{Key: "partition", Value: -1}}).Decode(&head)
			})
			return time.Duration(head.Patience["0"]) * time.Millisecond
		}
		if got := asked(); got != 2*patience {
			t.Errorf("patience is %v; want %v", got, 2*patience)
		}
		wantNext(t, s.Log, 5, 5, 6)
		for i := range uint64(4) {
			seq := s.Append(t.Context(), "t", 0, eventlogtest.Events(string('a'+rune(i)), 1))[0].Seq
			wantNext(t, s.Log, seq, seq)
			time.Sleep(2 * time.Second)
		}
		if got := asked(); got != 0 {
			t.Errorf("patience is %v after a while; want 0", got)
		}
	})
}

// A reservation that is executed late gives seqs to nobody.
func TestALateReservation(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		withTopic(t, s.Log)
		stored(t, s.Log, eventlogtest.Events("before", 1), 1)
		s.silent = true
		s.loseAnswer("findAndModify", events)
		time.AfterFunc(time.Second, func() { s.losing.Store(false) })
		stored(t, s.Log, eventlogtest.Events("a", 2), 2, 3)
		time.Sleep(2 * lateness)
		stored(t, s.Log, eventlogtest.Events("after", 1), 6)
		wantNext(t, s.Log, 4, 6)
	})
}
