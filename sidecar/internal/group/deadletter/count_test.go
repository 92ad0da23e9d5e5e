package deadletter

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/test/require"
)

func TestCount(t *testing.T) {
	log, err := pebblelog.Open(pebblelog.Options{FS: vfs.NewMem(), Dir: "data", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer log.Close()
	for name, n := range map[string]int{"a.dlq": 2500, "b.dlq": 0, "c": 3} {
		if _, err := log.EnsureTopic(t.Context(), name, 1); err != nil {
			t.Fatal(err)
		}
		recs := make([]*eventlog.Record, n)
		for i := range recs {
			recs[i] = &eventlog.Record{}
			recs[i].ID = fmt.Sprint("e", i)
			recs[i].TS = int64(1000 + i)
			recs[i].Payload = []byte("1")
		}
		log.Append(t.Context(), name, 0, recs)
	}
	stats, err := Count(t.Context(), log)
	if err != nil || len(stats) != 2 {
		t.Fatalf("%+v, %v", stats, err)
	}
	some, none := stats[0], stats[1]
	if some.Topic != "a" || some.Count != 2500 || some.Oldest.UnixMilli() != 1000 {
		t.Errorf("%+v", some)
	}
	if none.Topic != "b" || none.Count != 0 || !none.Oldest.IsZero() {
		t.Errorf("%+v", none)
	}
}
