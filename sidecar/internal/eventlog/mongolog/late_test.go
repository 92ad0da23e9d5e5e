package mongolog

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/mongomodel"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
)

// lateness is by how much the request is late that a lateStore loses: by then its sender has given up.
const lateness = time.Minute

// lateStore is a store on a model of a replica set, of which some requests come late.
type lateStore struct {
	*Log
	set                 *mongomodel.Set
	losing              atomic.Bool
	command, collection string // of the requests that are lost
}

// late makes a call whose commands of that name on the collection come late, so that it gives up.
func (s *lateStore) late(t *testing.T, command, collection string, call func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s.lose(command, collection)
	defer s.losing.Store(false)
	if err := call(ctx); err == nil {
		t.Error("the call did not give up")
	}
}

func (s *lateStore) lose(command, collection string) {
	s.command, s.collection = command, collection
	s.losing.Store(true)
}

// open opens a log on the store.
func (s *lateStore) open(t *testing.T, o Options) *Log {
	t.Helper()
	o.URL, o.Dialer = s.set.URI(), s.set.Dialer("sidecar")
	return openAdapted(t, o, func(*engine) {})
}

// withLateStore runs a test in a bubble, in which waiting takes no time.
func withLateStore(t *testing.T, test func(t *testing.T, s *lateStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &lateStore{}
		set := mongomodel.New(mongomodel.Options{Polling: true, Fault: func(r mongomodel.Request) mongomodel.Fault {
			if s.losing.Load() && r.Command == s.command && r.Collection == s.collection {
				return mongomodel.Fault{Late: lateness}
			}
			return mongomodel.Fault{}
		}})
		t.Cleanup(set.Close)
		s.set = set
		s.Log = s.open(t, Options{})
		test(t, s)
	})
}

func TestALateSaveChangesNothing(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		own := anEpoch(0, 1, "n1")
		if err := take(t, s.Log, own); err != nil {
			t.Fatal(err)
		}
		own.Progress.Cursor = 10
		s.late(t, "update", epochsName, func(ctx context.Context) error {
			return s.SaveEpochs(ctx, []eventlog.Epoch{own}, nil)
		})
		own.Progress.Cursor = 20
		if err := s.SaveEpochs(t.Context(), []eventlog.Epoch{own}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lateness)
		if e := latestEpoch(t, s.Log); e.Progress.Cursor != 20 {
			t.Errorf("the cursor is %d; want 20", e.Progress.Cursor)
		}
	})
}

func TestALateInheritanceChangesNothing(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		own := anHeir(0, 2, "n2")
		if err := take(t, s.Log, anEpoch(0, 1, "n1")); err != nil {
			t.Fatal(err)
		}
		s.late(t, "update", epochsName, func(ctx context.Context) error {
			return s.TakeEpochs(ctx, []eventlog.Epoch{own})[0]
		})
		own.Progress.Cursor = 20
		if err := s.SaveEpochs(t.Context(), []eventlog.Epoch{own}, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lateness)
		if e := latestEpoch(t, s.Log); e.Progress.Cursor != 20 {
			t.Errorf("the cursor is %d; want 20", e.Progress.Cursor)
		}
	})
}

func TestALateBeatChangesNothing(t *testing.T) {
	for _, lost := range []uint64{1, 2} {
		for _, leaves := range []bool{false, true} {
			t.Run(fmt.Sprintf("beat %d, the node leaves: %t", lost, leaves), func(t *testing.T) {
				withLateStore(t, func(t *testing.T, s *lateStore) {
					for beat := uint64(1); beat <= 3; beat++ {
						save := func(ctx context.Context) error {
							return s.SaveNode(ctx, eventlog.Node{ID: "run", Name: "edge", Beat: beat})
						}
						if beat == lost {
							s.late(t, "update", nodesName, save)
						} else if err := save(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if leaves {
						if err := s.RemoveNode(t.Context(), "run"); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(2 * lateness)
					nodes, err := s.ListNodes(t.Context())
					switch {
					case err != nil, leaves && len(nodes) > 0, !leaves && (len(nodes) != 1 || nodes[0].Beat != 3):
						t.Errorf("ListNodes = %+v, %v", nodes, err)
					}
				})
			})
		}
	}
}

// Events that were taken back are stored again, at other seqs: a second try of taking them back must not meet them there.
func TestALateTakingBackChangesNothing(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		var hook inserts
		a := s.open(t, Options{StaleHead: 2 * time.Second, Monitor: hook.monitor()})
		ensure(t, a, "t", 1)
		wantSeqs(t, stored(t, a, "t", eventlogtest.Events("a", 3)...), 1, 2, 3)
		hook.before(func() { // the process is paused just before it sends
			stored(t, s.Log, "t", eventlogtest.Events("b", 3)...)
			vanish(t, s.Log, "t", 6)
			time.Sleep(time.Second)
			s.lose("delete", eventsName)
			time.AfterFunc(time.Second, func() { s.losing.Store(false) })
		})
		late := eventlogtest.Events("late", 2)
		wantSeqs(t, stored(t, a, "t", late...), 7, 8)
		time.Sleep(2 * lateness)
		for _, e := range late {
			if got, err := s.Lookup(t.Context(), "t", e.ID); err != nil || got.Seq != e.Seq {
				t.Errorf("event %q: %+v, %v; want seq %d", e.ID, got, err, e.Seq)
			}
		}
	})
}
