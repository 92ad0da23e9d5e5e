package signals

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func TestSignalSet(t *testing.T) {
	t.Run("merges", func(t *testing.T) {
		var s signalSet
		if !s.empty() {
			t.Error("a new set is not empty")
		}
		hint := func(partition int, head uint64) {
			s.addHint(eventlog.Hint{Topic: "t", Partition: partition, Head: head})
		}
		hint(0, 5)
		hint(0, 3)
		hint(1, 4)
		hint(1, 0) // more than 4, for all that is known
		hint(1, 9)
		for range 2 {
			s.addMoved(eventlog.GroupName{Topic: "t", Group: "g"})
			s.addNodes("t")
		}
		d := s.doc()
		slices.SortFunc(d.Appended, func(a, b eventlog.Hint) int { return a.Partition - b.Partition })
		if want := []eventlog.Hint{{Topic: "t", Head: 5}, {Topic: "t", Partition: 1}}; !slices.Equal(d.Appended, want) ||
			len(d.Moved) != 1 || len(d.Nodes) != 1 || d.All || !slices.Equal(d.Slots, []int32{slotOf("t")}) {
			t.Errorf("merged: %+v", d)
		}
		var queue signalQueue
		queue.putBack(shardOf(slotOf("t")), d)
		again := &queue.shards[shardOf(slotOf("t"))].waiting
		if fmt.Sprint(again.doc().Slots, len(again.heads), again.moved, again.nodes) != fmt.Sprint(s.doc().Slots, 2, s.moved, s.nodes) {
			t.Errorf("put back: %+v", again.doc())
		}
	})
	for name, fill := range map[string]func(s *signalSet, i int){
		"too many partitions": func(s *signalSet, i int) { s.addHint(eventlog.Hint{Topic: "t", Partition: i, Head: 1}) },
		"too many groups":     func(s *signalSet, i int) { s.addMoved(eventlog.GroupName{Topic: "t", Group: fmt.Sprint(i)}) },
		"too many topics":     func(s *signalSet, i int) { s.addNodes(fmt.Sprint("t", i)) },
		"names too long": func(s *signalSet, i int) {
			s.addHint(eventlog.Hint{Topic: fmt.Sprint(strings.Repeat("x", 1000), i), Head: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s signalSet
			s.addNodes("first")
			for i := range 10 * maxSignalParts {
				fill(&s, i)
				if len(s.heads)+len(s.moved)+len(s.nodes) > maxSignalParts || s.bytes > maxSignalBytes {
					t.Fatalf("%d partitions, %d groups, %d bytes", len(s.heads), len(s.moved), s.bytes)
				}
			}
			d := s.doc()
			if !d.All || len(d.Appended)+len(d.Moved)+len(d.Nodes) > 0 || !slices.Contains(d.Slots, slotOf("first")) || len(d.Slots) < 2 {
				t.Errorf("too much became %+v", d)
			}
			var queue signalQueue
			queue.putBack(1, d)
			if again := &queue.shards[1].waiting; !again.all || !slices.Equal(again.doc().Slots, d.Slots) {
				t.Errorf("put back: %+v", again.doc())
			}
		})
	}
}
