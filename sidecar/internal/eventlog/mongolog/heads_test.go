package mongolog

import (
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
)

// stored appends events that must be new and returns their seqs.
func stored(t *testing.T, l *Log, topic string, batch ...*eventlog.Record) []uint64 {
	t.Helper()
	var seqs []uint64
	for i, o := range l.Append(t.Context(), topic, 0, batch) {
		if o.Err != nil || o.Duplicate {
			t.Fatalf("event %q: %+v", batch[i].ID, o)
		}
		seqs = append(seqs, o.Seq)
	}
	return seqs
}

func wantSeqs(t *testing.T, got []uint64, want ...uint64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("seqs %v; want %v", got, want)
	}
}

func ensure(t testing.TB, l *Log, topic string, partitions int) {
	t.Helper()
	if _, err := l.EnsureTopic(t.Context(), topic, partitions); err != nil {
		t.Fatal(err)
	}
}

// A log of a version without heads goes on above all seqs that it gave out: those of stored events,
// of removed events, and of events that groups have read.
func TestAnOlderLogGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		seq, removed, cursor int64
		want                 uint64
	}{"events": {7, 3, 4, 8}, "removed events": {7, 9, 8, 10}, "cursors": {7, 0, 12, 12}} {
		t.Run(name, func(t *testing.T) {
			l, again := opened(t, Options{}, asItIs)
			insertEvents(t, l, eventlog.Hint{Topic: "t", Partition: 0, Head: uint64(c.seq)})
			for collection, doc := range map[string]bson.D{
				oldHeadsName: append(inPartition("t", 0), bson.E{Key: "_id", Value: "t/0/x"}, bson.E{Key: "seq", Value: c.removed}),
				epochsName:   append(inPartition("t", 0), bson.E{Key: "_id", Value: "t/g/0/1"}, bson.E{Key: "cursor", Value: c.cursor}),
			} {
				if _, err := l.majority(collection).InsertOne(t.Context(), doc); err != nil {
					t.Fatal(err)
				}
			}
			wantSeqs(t, stored(t, again(), "t", eventlogtest.Event("a")), c.want)
		})
	}
}
