package wakeup_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/wakeup"
)

// Appends while no other sidecar was there are announced once one is.
func TestAnnouncer(t *testing.T) {
	peers := false
	var sent []eventlog.Hint
	a := wakeup.Announcer{HasPeers: func() bool { return peers }, Send: func(s eventlog.Signal) { sent = append(sent, s.Appended...) }}
	looked := func(with bool, want ...eventlog.Hint) {
		t.Helper()
		peers = with
		a.Looked()
		slices.SortFunc(sent, func(a, b eventlog.Hint) int { return cmp.Compare(a.Partition, b.Partition) })
		if !slices.Equal(sent, want) {
			t.Errorf("told %v, want %v", sent, want)
		}
		sent = nil
	}
	looked(true)
	looked(false)
	hint := func(partition int, head uint64) eventlog.Hint {
		return eventlog.Hint{Topic: "t", Partition: partition, Head: head}
	}
	for _, h := range []eventlog.Hint{hint(0, 7), hint(0, 9), hint(0, 8), hint(1, 3), hint(1, 0), hint(1, 4)} {
		a.Appended(h)
	}
	looked(false)
	looked(true, hint(0, 9), hint(1, 0))
	looked(true)
	a.Appended(hint(2, 5))
	looked(true, hint(2, 5))
	peers = false
	for i := range 10_000 {
		a.Appended(hint(i, 1))
	}
	if looked(false); !slices.Contains(told(&a, &peers, &sent), eventlog.Hint{}) || len(sent) > 1025 {
		t.Errorf("of too many partitions it told %d, and not all topics", len(sent))
	}
}

func told(a *wakeup.Announcer, peers *bool, sent *[]eventlog.Hint) []eventlog.Hint {
	*peers = true
	a.Looked()
	return *sent
}
