package mongolog

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// insertEvents inserts events with the fields that Ahead looks at, all at once.
func insertEvents(t *testing.T, l *Log, hints ...eventlog.Hint) {
	t.Helper()
	docs := make([]bson.D, len(hints))
	for i, h := range hints {
		docs[i] = bson.D{{Key: "_id", Value: fmt.Sprintf("%s/%d-%d", h.Topic, h.Partition, h.Head)},
			{Key: "topic", Value: h.Topic}, {Key: "partition", Value: h.Partition}, {Key: "seq", Value: int64(h.Head)}}
	}
	if _, err := l.store.Majority(core.Events).InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
}

func TestAhead(t *testing.T) {
	open := sharedStore(t)
	l := open()
	var stored []eventlog.Hint
	for seq := range uint64(20) {
		stored = append(stored, eventlog.Hint{Topic: "a", Partition: 0, Head: seq + 1},
			eventlog.Hint{Topic: "b", Partition: 3, Head: 5 * (seq + 1)})
	}
	insertEvents(t, l, stored...)
	for name, test := range map[string]struct{ known, want []eventlog.Hint }{
		"nothing asked": {},
		"all known": {known: []eventlog.Hint{{Topic: "a", Partition: 0, Head: 20}, {Topic: "a", Partition: 1, Head: 0},
			{Topic: "b", Partition: 3, Head: 100}, {Topic: "c", Partition: 0, Head: 0}}},
		"one ahead": {known: []eventlog.Hint{{Topic: "a", Partition: 0, Head: 20},
			{Topic: "b", Partition: 3, Head: 99}}, want: []eventlog.Hint{{Topic: "b", Partition: 3, Head: 100}}},
		"all ahead": {known: []eventlog.Hint{{Topic: "a", Partition: 0, Head: 0}, {Topic: "b", Partition: 3, Head: 1 << 40},
			{Topic: "b", Partition: 3, Head: 7}}, want: []eventlog.Hint{{Topic: "a", Partition: 0, Head: 20},
			{Topic: "b", Partition: 3, Head: 100}}},
		"not asked about": {known: []eventlog.Hint{{Topic: "b", Partition: 0, Head: 0}}},
	} {
		got, err := l.Ahead(t.Context(), test.known)
		slices.SortFunc(got, func(x, y eventlog.Hint) int { return cmp.Compare(x.Topic, y.Topic) })
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: Ahead = %v, %v; want %v", name, got, err, test.want)
		}
	}
}

// TestAheadOfAFullPartition: a partition with more events than one query looks at does not hide the
// others.
func TestAheadOfAFullPartition(t *testing.T) {
	open := sharedStore(t)
	l := open()
	var stored []eventlog.Hint
	for seq := range uint64(1000 + 50) {
		stored = append(stored, eventlog.Hint{Topic: "a", Partition: 0, Head: seq + 1})
	}
	insertEvents(t, l, append(stored, eventlog.Hint{Topic: "b", Partition: 1, Head: 1})...)
	got, err := l.Ahead(t.Context(), []eventlog.Hint{{Topic: "a"}, {Topic: "b", Partition: 1}, {Topic: "c"}})
	slices.SortFunc(got, func(x, y eventlog.Hint) int { return cmp.Compare(x.Topic, y.Topic) })
	if err != nil || len(got) != 2 || got[0].Topic != "a" || got[1] != (eventlog.Hint{Topic: "b", Partition: 1, Head: 1}) {
		t.Errorf("Ahead = %v, %v; want hints for a and b", got, err)
	}
}

// TestAheadIsFewCommands asks for 100 topics of 8 partitions.
func TestAheadIsFewCommands(t *testing.T) {
	s := mongotest.Shared(t)
	var commands counter
	l := mustOpen(t, Options{URL: s.URI(s.NewDatabase(t)), Monitor: &event.CommandMonitor{Started: commands.count}})
	require.NoError(t, l.Ping(t.Context()))
	var known []eventlog.Hint
	for topic := range 100 {
		for p := range 8 {
			known = append(known, eventlog.Hint{Topic: fmt.Sprintf("topic-%d", topic), Partition: p})
		}
	}
	insertEvents(t, l, known[3], eventlog.Hint{Topic: "topic-7", Partition: 2, Head: 9})
	before := commands.n()
	got, err := l.Ahead(t.Context(), known)
	if err != nil || len(got) != 1 || got[0] != (eventlog.Hint{Topic: "topic-7", Partition: 2, Head: 9}) {
		t.Errorf("Ahead = %v, %v", got, err)
	}
	if n := commands.n() - before; n > 8 {
		t.Errorf("Ahead took %d commands; want 8", n)
	}
}
