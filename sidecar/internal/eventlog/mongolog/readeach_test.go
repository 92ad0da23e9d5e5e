package mongolog

import (
	"fmt"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/test/require"
)

// ReadEach reads several partitions at once: each from its place on, up to the first seq without an
// event, and together no more than the caller asked for.
func TestReadEach(t *testing.T) {
	l := sharedStore(t)()
	ensure(t, l, "t", 3)
	for p := range 3 {
		for i, o := range l.Append(t.Context(), "t", p, eventlogtest.Events(fmt.Sprintf("p%d", p), 6)) {
			if o.Err != nil || o.Seq != uint64(i+1) {
				t.Fatalf("%+v", o)
			}
		}
	}
	// Retention has taken the fourth of partition 1.
	fourth, gone := events.InPartition("t", 1, events.Between(4, 4)), map[string]any{"$set": map[string]any{"gone": true}}
	if _, err := l.store.Majority(core.Events).UpdateOne(t.Context(), fourth, gone); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		places []eventlog.Place
		most   int
		want   string
	}{
		{nil, 10, "[]"},
		{[]eventlog.Place{{Partition: 2, Seq: 5}}, 10, "[[5 6]]"},
		{[]eventlog.Place{{Partition: 2, Seq: 2}, {Partition: 0, Seq: 6}, {Partition: 1, Seq: 2}}, 30, "[[2 3 4 5 6] [6] [2 3]]"},
		{[]eventlog.Place{{Partition: 0, Seq: 1}, {Partition: 1, Seq: 4}, {Partition: 2, Seq: 7}}, 30, "[[1 2 3 4 5 6] [] []]"},
		{[]eventlog.Place{{Partition: 0, Seq: 1}, {Partition: 1, Seq: 1}}, 5, "[[1 2] [1 2]]"},
		{[]eventlog.Place{{Partition: 0, Seq: 1}, {Partition: 1, Seq: 1}, {Partition: 2, Seq: 1}}, 1, "[[1] [1] [1]]"},
	} {
		each, err := l.ReadEach(t.Context(), "t", c.places, eventlog.Bounds{Events: c.most})
		require.NoError(t, err)
		seqs := make([][]uint64, len(each))
		for i, recs := range each {
			for _, rec := range recs {
				if rec.Partition != c.places[i].Partition {
					t.Errorf("%v: place %d has an event of partition %d", c.places, i, rec.Partition)
				}
				seqs[i] = append(seqs[i], rec.Seq)
			}
		}
		if got := fmt.Sprint(seqs); got != c.want {
			t.Errorf("%v, %d: %s; want %s", c.places, c.most, got, c.want)
		}
	}
}
