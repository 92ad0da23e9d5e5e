// Package eventlogtest is the conformance suite of eventlog.Log. It tests the promises of that
// interface, with one file for each group of promises. It uses the interface alone, so that every
// log can run it.
package eventlogtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Store is one store under test. The suite gets it empty.
type Store struct {
	Log eventlog.Log
	// Reopen closes the log that is open and opens the same data again.
	Reopen func(t *testing.T) eventlog.Log
}

// Run runs the suite. open makes a new, empty store and closes it with t.Cleanup. The suite opens
// one store per group of promises and does a few thousand operations in all, so that a log whose
// operations take milliseconds passes in reasonable time. With only, Run runs the groups of these
// names alone.
func Run(t *testing.T, open func(t *testing.T) Store, only ...string) {
	groups := []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"Catalog", testCatalog},
		{"Holdings", testHoldings},
		{"Append", testAppend},
		{"Race", testRace},
		{"Together", testTogether},
		{"Read", testRead},
		{"Scan", testScan},
		{"Seek", testSeek},
		{"Find", testFind},
		{"Latest", testLatest},
		{"Fidelity", testFidelity},
		{"Epochs", testEpochs},
		{"Inherit", testInherit},
		{"Progress", testProgress},
		{"Marks", testMarks},
		{"Erasures", testErasures},
		{"Redrives", testRedrives},
		{"Scheduled", testScheduled},
		{"Retention", testRetention},
		{"Positions", testPositions},
		{"Deduplication", testDeduplication},
		{"Compaction", testCompaction},
		{"Deletion", testDeletion},
		{"Model", testModel},
		{"History", testHistory},
		{"Lifetime", testLifetime}, // closes its store
	}
	for _, g := range groups {
		if len(only) > 0 && !slices.Contains(only, g.name) {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			store := open(t)
			g.run(t, &suite{log: store.Log, store: store})
		})
	}
}

// suite is the store under test, which the tests of one group share.
type suite struct {
	store Store
	log   eventlog.Log // changes with reopen
}

func (s *suite) reopen(t *testing.T) {
	t.Helper()
	s.log = s.store.Reopen(t)
}

// must ends the test at an error.
func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// errOf is the error of a call that also returns something else.
func errOf(_ any, err error) error { return err }

// tester is what helpers need of a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

var topics atomic.Int64

// topic creates a topic that no other test uses.
func (s *suite) topic(t tester, partitions int) string {
	t.Helper()
	name := fmt.Sprintf("topic-%d", topics.Add(1))
	must(t, errOf(s.log.EnsureTopic(t.Context(), name, partitions)))
	return name
}

// append appends and returns the outcomes. None may be unknown. A test's goroutines may call it and
// stored.
func (s *suite) append(t tester, topic string, partition int, batch ...*eventlog.Record) []eventlog.Outcome {
	t.Helper()
	out := s.log.Append(t.Context(), topic, partition, batch)
	if len(out) != len(batch) {
		t.Fatalf("Append of %d events gave %d outcomes", len(batch), len(out))
	}
	for i, o := range out {
		var conflict *eventlog.ConflictError
		if o.Err != nil && !errors.As(o.Err, &conflict) {
			t.Errorf("Append of event %q: %v", batch[i].ID, o.Err)
		}
	}
	return out
}

// stored appends events that must all be new, and returns their seqs.
func (s *suite) stored(t tester, topic string, partition int, batch ...*eventlog.Record) []uint64 {
	t.Helper()
	seqs := make([]uint64, len(batch))
	for i, o := range s.append(t, topic, partition, batch...) {
		if o.Err != nil || o.Duplicate {
			t.Errorf("Append of new event %q: %+v", batch[i].ID, o)
		}
		seqs[i] = o.Seq
	}
	return seqs
}

var everything = eventlog.Bounds{Events: 1 << 20}

// readAll reads a partition from its start.
func (s *suite) readAll(t tester, topic string, partition int) []*eventlog.Record {
	t.Helper()
	events, err := s.log.Read(t.Context(), topic, partition, 1, everything)
	must(t, err)
	return events
}

// wantRead fails the test unless a partition has exactly the events with these ids.
func (s *suite) wantRead(t tester, topic string, partition int, want ...string) {
	t.Helper()
	if got := ids(s.readAll(t, topic, partition)); !slices.Equal(got, want) {
		t.Errorf("partition %d has %q; want %q", partition, got, want)
	}
}

// wantScan fails the test unless a scan of the topic finds exactly the events with these ids.
func (s *suite) wantScan(t tester, topic string, want ...string) {
	t.Helper()
	got, err := s.log.Scan(t.Context(), topic, eventlog.ScanQuery{}, everything)
	if err != nil || !slices.Equal(ids(got), want) {
		t.Errorf("Scan finds %q, %v; want %q", ids(got), err, want)
	}
}

// wantExtent fails the test unless that is what a partition holds, from which retention alone has
// removed events.
func (s *suite) wantExtent(t tester, topic string, partition int, first, head uint64) {
	t.Helper()
	e := s.extent(t, topic, partition)
	e.Voids = 0 // a repeated publish may leave one
	if e != (eventlog.Extent{First: first, Head: head, Removed: first - 1}) {
		t.Errorf("partition %d has extent %+v; want First %d, Head %d", partition, e, first, head)
	}
}

// wantDuplicate fails the test unless an event is stored already, at that seq.
func (s *suite) wantDuplicate(t tester, topic string, partition int, e *eventlog.Record, seq uint64) {
	t.Helper()
	if got := s.append(t, topic, partition, e)[0]; !got.Duplicate || got.Seq != seq || got.DeliverAt != 0 {
		t.Errorf("%q again: %+v; want a duplicate of seq %d", e.ID, got, seq)
	}
}

// wantConflict fails the test unless an event's id is stored already with other content, at that
// seq; 0: it is scheduled.
func (s *suite) wantConflict(t tester, topic string, partition int, e *eventlog.Record, seq uint64) {
	t.Helper()
	conflictAt(t, s.append(t, topic, partition, e)[0], e.ID, seq)
}

// wantNoEvent fails the test if a topic has an event with the id.
func (s *suite) wantNoEvent(t tester, topic, id string) {
	t.Helper()
	notFound(t, "Lookup of "+id, errOf(s.log.Lookup(t.Context(), topic, id)))
}

// wantLatestByKey fails the test unless the latest event of a key has that id; "": unless there is
// none.
func (s *suite) wantLatestByKey(t tester, topic, key, id string) {
	t.Helper()
	got, err := LatestByKey(t.Context(), s.log, topic, key)
	switch {
	case id == "":
		notFound(t, "LatestByKey of "+key, err)
	case err != nil || got.ID != id:
		t.Errorf("LatestByKey(%q) = %+v, %v; want %q", key, got, err, id)
	}
}

// extent returns what one partition holds.
func (s *suite) extent(t tester, topic string, partition int) eventlog.Extent {
	t.Helper()
	extents, err := s.log.Extents(t.Context(), topic)
	must(t, err)
	return extents[partition]
}

// ended is a context that is over.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func ids(events []*eventlog.Record) []string {
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = e.ID
	}
	return list
}

func seqs(events []*eventlog.Record) []uint64 {
	list := make([]uint64, len(events))
	for i, e := range events {
		list[i] = e.Seq
	}
	return list
}
