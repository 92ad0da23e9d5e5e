package pebblelog

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/require"
)

// Where the events are gone that a group's progress or a redrive names, a start says so, and gives their seqs to no
// other event.
func TestSeqsThatGroupsNameAreNotGivenOutAgain(t *testing.T) {
	at := eventlog.GroupPartition{Topic: "t", Group: "a\x00b", Partition: 1}
	last := []eventlog.SeqRange{{First: 9, Last: 10}}
	redrive := eventlog.Redrive{GroupPartition: at, Seq: 10, Letter: "l"}
	for name, progress := range map[string]eventlog.Progress{
		"cursor":            {Cursor: 11},
		"settled":           {Cursor: 1, Settled: last},
		"attempts":          {Cursor: 1, Attempts: []eventlog.AttemptRange{{SeqRange: last[0], Attempts: 2}}},
		"out":               {Cursor: 1, Out: last, OutBy: "n"},
		"unsure":            {Cursor: 1, Unsure: last},
		"delay":             {Cursor: 1, Delays: []eventlog.Delay{{Seq: 10, Until: 1}}},
		"redrive":           {Cursor: 1},
		"redriven progress": {Cursor: 1, Redrives: []eventlog.RedriveProgress{{Seq: 10, Letter: "l", Attempts: 1}}},
		"nothing":           {Cursor: 1},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			l := mustOpen(t, Options{Dir: "data", FS: disk})
			ensure(t, l, "t", 2)
			for _, o := range l.Append(t.Context(), "t", 1, eventlogtest.Events("e", 10)) {
				require.NoError(t, o.Err)
			}
			require.NoError(t, l.TakeEpochs(t.Context(), []eventlog.Epoch{{GroupPartition: at, Number: 1, Owner: "n"}})[0])
			require.NoError(t, l.SaveEpochs(t.Context(), []eventlog.Epoch{{GroupPartition: at, Number: 1, Owner: "n", Progress: progress}}, nil))
			if name == "redrive" {
				other := redrive
				other.Group, other.Seq = "c", 2
				require.NoError(t, l.AddRedrives(t.Context(), "t", []eventlog.Redrive{redrive, other}))
			}
			require.NoError(t, l.db.DeleteRange(eventKey(nil, 1, 1, 0), eventKey(nil, 1, 2, 0), pebble.NoSync))
			require.NoError(t, l.Close())

			var said lockedbuffer.Buffer
			l = mustOpen(t, Options{Dir: "data", FS: disk, Logger: slog.New(slog.NewTextHandler(&said, nil))})
			defer l.Close()
			out := l.Append(t.Context(), "t", 1, []*eventlog.Record{eventlogtest.Event("new")})[0]
			require.NoError(t, out.Err)
			want, line := uint64(11), fmt.Sprintf("partition=1 group=%q first_missing=1 last_missing=10", at.Group)
			if name == "nothing" {
				want, line = 1, ""
			}
			if out.Seq != want {
				t.Errorf("the new event has seq %d; want %d", out.Seq, want)
			}
			if !strings.Contains(said.String(), line) || line == "" && said.String() != "" {
				t.Errorf("the log says %q; want %q", said.String(), line)
			}
		})
	}
}
