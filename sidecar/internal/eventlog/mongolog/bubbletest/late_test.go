package bubbletest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// lateness is how late a lost request of a lateStore arrives: its sender has given up by then.
const lateness = time.Minute

// lateStore is a store on a model of a replica set, of which some requests come late.
type lateStore struct {
	*mongolog.Log
	set                 *mongomodel.Set
	losing              atomic.Bool
	silent              bool         // the sender is kept waiting; else the connection ends
	command, collection string       // of the requests that are lost
	commands            atomic.Int64 // of the log, about events
}

// late makes a call that gives up, since its commands of that name on the collection come late.
func (s *lateStore) late(t *testing.T, command, collection string, call func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s.loseAnswer(command, collection)
	defer s.losing.Store(false)
	if err := call(ctx); err == nil {
		t.Error("the call did not give up")
	}
}

func (s *lateStore) loseAnswer(command, collection string) {
	s.command, s.collection = command, collection
	s.losing.Store(true)
}

// withLateStore runs a test in a bubble, in which waiting takes no time.
func withLateStore(t *testing.T, test func(t *testing.T, s *lateStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &lateStore{}
		set := mongomodel.New(mongomodel.Options{Polling: true, Fault: func(r mongomodel.Request) mongomodel.Fault {
			if s.losing.Load() && r.Command == s.command && r.Collection == s.collection {
				return mongomodel.Fault{Late: lateness, Silent: s.silent}
			}
			return mongomodel.Fault{}
		}})
		t.Cleanup(set.Close)
		s.set = set
		s.Log = open(t, set, mongolog.Options{Monitor: counting(events, &s.commands)})
		test(t, s)
	})
}

// anEpoch is an epoch of a partition.
func anEpoch(number uint64, owner string) eventlog.Epoch {
	return eventlog.Epoch{
		GroupPartition: eventlog.GroupPartition{Topic: "orders", Group: "billing"},
		Number:         number, Owner: owner, Progress: eventlog.Progress{Cursor: 1},
	}
}

func mustTakeEpoch(t *testing.T, l *mongolog.Log, e eventlog.Epoch) {
	t.Helper()
	require.NoError(t, l.TakeEpochs(t.Context(), []eventlog.Epoch{e})[0])
}

func wantCursor(t *testing.T, l *mongolog.Log, want uint64) {
	t.Helper()
	latest, err := l.LatestEpochs(t.Context(), "orders", "billing")
	if err != nil || len(latest) != 1 || latest[0].Progress.Cursor != want {
		t.Errorf("LatestEpochs = %+v, %v; want one with the cursor %d", latest, err, want)
	}
}

func TestALateSaveChangesNothing(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		own := anEpoch(1, "n1")
		mustTakeEpoch(t, s.Log, own)
		own.Progress.Cursor = 10
		s.late(t, "update", epochs, func(ctx context.Context) error {
			return s.SaveEpochs(ctx, []eventlog.Epoch{own}, nil)
		})
		own.Progress.Cursor = 20
		require.NoError(t, s.SaveEpochs(t.Context(), []eventlog.Epoch{own}, nil))
		time.Sleep(2 * lateness)
		wantCursor(t, s.Log, 20)
	})
}

func TestALateInheritanceChangesNothing(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		own := anEpoch(2, "n2")
		own.Inherit = true
		mustTakeEpoch(t, s.Log, anEpoch(1, "n1"))
		s.late(t, "update", epochs, func(ctx context.Context) error {
			return s.TakeEpochs(ctx, []eventlog.Epoch{own})[0]
		})
		own.Progress.Cursor = 20
		require.NoError(t, s.SaveEpochs(t.Context(), []eventlog.Epoch{own}, nil))
		time.Sleep(2 * lateness)
		wantCursor(t, s.Log, 20)
	})
}

func TestALateBeatChangesNothing(t *testing.T) {
	for _, lost := range []uint64{2, 3} {
		for _, leaves := range []bool{false, true} {
			t.Run(fmt.Sprintf("beat %d, the node leaves: %t", lost, leaves), func(t *testing.T) {
				withLateStore(t, func(t *testing.T, s *lateStore) {
					for beat := uint64(1); beat <= 3; beat++ {
						save := func(ctx context.Context) error {
							return s.SaveNode(ctx, eventlog.Node{ID: "run", Name: "edge", Beat: beat})
						}
						if beat == lost {
							s.late(t, "update", nodes, save)
						} else if err := save(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if leaves {
						require.NoError(t, s.EndNode(t.Context(), "run"))
					}
					time.Sleep(2 * lateness)
					left, err := s.ListNodes(t.Context())
					switch {
					case err != nil, len(left) != 1, leaves != (left[0].State == eventlog.NodeEnded), !leaves && left[0].Beat != 3:
						t.Errorf("ListNodes = %+v, %v", left, err)
					}
				})
			})
		}
	}
}

// A late entry is one more change, and replaces no other.
func TestALateEntryIsOneMore(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		came, ended := eventlog.NodeChange{ID: "run", Version: 1}, eventlog.NodeChange{ID: "run", Version: 1, State: eventlog.NodeEnded}
		s.late(t, "update", nodes, func(ctx context.Context) error { return s.Enter(ctx, came) })
		require.NoError(t, s.Enter(t.Context(), ended))
		for _, want := range [][]eventlog.NodeChange{{ended}, {ended, came}} {
			_, roll, err := s.Look(t.Context(), nil, 0)
			if err != nil || roll.Number < uint64(len(want)) || !slices.Equal(slices.Compact(roll.Changes), want) {
				t.Errorf("the roll is %+v, %v; want %+v", roll, err, want)
			}
			time.Sleep(2 * lateness)
		}
	})
}

// A scheduled event does not come back once it was cancelled, whichever of its requests comes late.
// Its id is free, and nothing of it is left after a day.
func TestALatePublishDoesNotUndoACancel(t *testing.T) {
	event := func() *eventlog.Record {
		return eventlogtest.Event("a", eventlogtest.Due(time.Now().Add(10*lateness).UnixMilli()))
	}
	schedule := func(ctx context.Context, l *mongolog.Log) error {
		return l.Append(ctx, "t", 0, []*eventlog.Record{event()})[0].Err
	}
	waiting := func(t *testing.T, s *lateStore, want int) {
		t.Helper()
		if list, err := s.ListScheduled(t.Context(), "t", nil, 10); err != nil || len(list) != want {
			t.Errorf("scheduled: %+v, %v; want %d", list, err, want)
		}
	}
	withLateStore(t, func(t *testing.T, s *lateStore) {
		withTopic(t, s.Log)
		s.silent = true
		for _, command := range []string{"insert", "update"} { // the second time, the event replaces the cancelled one
			s.late(t, command, events, func(ctx context.Context) error { return schedule(ctx, s.Log) })
			require.NoError(t, schedule(t.Context(), s.Log))
			require.NoError(t, s.Cancel(t.Context(), "t", "a"))
			time.Sleep(2 * lateness)
			waiting(t, s, 0)
		}
		require.NoError(t, schedule(t.Context(), s.Log))
		s.late(t, "update", events, func(ctx context.Context) error { return s.Cancel(ctx, "t", "a") })
		require.NoError(t, s.Cancel(t.Context(), "t", "a"))
		require.NoError(t, schedule(t.Context(), s.Log))
		time.Sleep(2 * lateness)
		waiting(t, s, 1)
		require.NoError(t, s.Cancel(t.Context(), "t", "a"))
		time.Sleep(25 * time.Hour)
		if left := documents(t, s.set); len(left) != 0 {
			t.Errorf("still there: %v", left)
		}
	})
}

// A cancel whose answer is lost returns nil where it was carried out, whatever is published under
// the id before it asks again, and ErrNotFound where the event was released instead.
func TestCancelWhoseAnswerIsLost(t *testing.T) {
	carriedOut, lost := mongomodel.Fault{LoseAnswer: true, Silent: true}, mongomodel.Fault{LoseRequest: true, Silent: true}
	publish := func(t *testing.T, l *mongolog.Log, options ...func(*eventlog.Record)) {
		t.Helper()
		if o := l.Append(t.Context(), "t", 0, []*eventlog.Record{eventlogtest.Event("a", options...)})[0]; o.Err != nil {
			t.Fatal(o.Err)
		}
	}
	schedule := func(t *testing.T, l *mongolog.Log) {
		t.Helper()
		publish(t, l, eventlogtest.Due(time.Now().Add(time.Hour).UnixMilli()))
	}
	release := func(t *testing.T, l *mongolog.Log) {
		t.Helper()
		due, _, err := l.Due(t.Context(), nil, nil, math.MaxInt64, 10)
		if err != nil || len(due) != 1 {
			t.Fatalf("due: %+v, %v", due, err)
		}
		if o := l.Release(t.Context(), "t", due, due[0].DeliverAt)[0]; o.Err != nil {
			t.Fatal(o.Err)
		}
	}
	for _, tc := range []struct {
		name      string
		update    mongomodel.Fault // what happens to the update
		meanwhile func(*testing.T, *mongolog.Log)
		want      error
	}{
		{"carried out", carriedOut, func(*testing.T, *mongolog.Log) {}, nil},
		{"carried out, then published", carriedOut, func(t *testing.T, l *mongolog.Log) { publish(t, l) }, nil},
		{"carried out, then scheduled", carriedOut, schedule, nil},
		{"carried out, then scheduled and released", carriedOut, func(t *testing.T, l *mongolog.Log) {
			schedule(t, l)
			release(t, l)
		}, nil},
		{"lost", lost, func(*testing.T, *mongolog.Log) {}, nil},
		{"lost, then released", lost, release, eventlog.ErrNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var losing atomic.Bool
				set := mongomodel.New(mongomodel.Options{Polling: true, Fault: func(r mongomodel.Request) mongomodel.Fault {
					if losing.Load() && r.Command == "update" && r.Collection == events {
						return tc.update
					}
					return mongomodel.Fault{}
				}})
				t.Cleanup(set.Close)
				l := open(t, set, mongolog.Options{})
				withTopic(t, l)
				schedule(t, l)
				losing.Store(true)
				cancelled := make(chan error, 1)
				go func() { cancelled <- l.Cancel(t.Context(), "t", "a") }()
				time.Sleep(time.Second) // it waits for its answer
				losing.Store(false)
				tc.meanwhile(t, l)
				if err := <-cancelled; !errors.Is(err, tc.want) {
					t.Errorf("Cancel: %v; want %v", err, tc.want)
				}
			})
		})
	}
}
