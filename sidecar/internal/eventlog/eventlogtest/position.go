package eventlogtest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/position"
)

// seekTo returns where a reader of partition 0 goes on behind a seq.
func seekTo(t tester, log eventlog.Log, topic string, seq uint64) (start uint64, _ error) {
	t.Helper()
	o := wire.SubscribeOptions{From: wire.FromPositions, Positions: map[int]uint64{0: seq}}
	starts, err := position.Seek(t.Context(), log, topic, o)
	if err != nil {
		return 0, err
	}
	return starts[0], nil
}

// WantPosition fails the test unless a reader of partition 0 can go on behind a seq, right at the
// next event.
func WantPosition(t tester, log eventlog.Log, topic string, seq uint64) {
	t.Helper()
	start, err := seekTo(t, log, topic, seq)
	if err != nil || start == 0 || start > seq+1 {
		t.Errorf("position %d: start at %d, %v; want it accepted", seq, start, err)
		return
	}
	between, err := log.Read(t.Context(), topic, 0, start, everything)
	if must(t, err); len(between) > 0 && between[0].Seq <= seq {
		t.Errorf("position %d: starts at %d, with the event at %d", seq, start, between[0].Seq)
	}
}

// WantTooOld fails the test unless a position in partition 0 is refused, since events behind it are
// gone, and the error names the earliest seq.
func WantTooOld(t tester, log eventlog.Log, topic string, seq uint64) {
	t.Helper()
	extents, err := log.Extents(t.Context(), topic)
	must(t, err)
	wantRefused(t, log, topic, seq, wire.OutOfRange, fmt.Sprintf("begins at seq %d now", extents[0].First))
}

// WantNoPosition fails the test unless a position in partition 0 is refused as above all seqs.
func WantNoPosition(t tester, log eventlog.Log, topic string, seq uint64) {
	t.Helper()
	wantRefused(t, log, topic, seq, wire.BadRequest, fmt.Sprintf("has seqs up to %d", seq-1))
}

func wantRefused(t tester, log eventlog.Log, topic string, seq uint64, code wire.Code, says string) {
	t.Helper()
	start, err := seekTo(t, log, topic, seq)
	if !errors.Is(err, &wire.Error{Code: code}) || !strings.Contains(err.Error(), says) {
		t.Errorf("position %d: start at %d, %v; want %s: %s", seq, start, err, code, says)
	}
}
