package group

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// What was out counts where its owner died, and not where it ended in order,
// seq by seq.
func TestInherited(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const seqs = 12
		var pr eventlog.Progress
		var attempts [seqs]int
		var out, unsure [seqs]bool
		for seq := range uint64(seqs) {
			attempts[seq] = rapid.IntRange(0, 2).Draw(t, "attempts")
			out[seq] = attempts[seq] > 0 && rapid.Bool().Draw(t, "out")
			unsure[seq] = attempts[seq] > 0 && rapid.Bool().Draw(t, "unsure")
			pr.Attempts = addAttempts(pr.Attempts, seq, attempts[seq])
			if out[seq] {
				pr.Out, pr.OutBy = addSeq(pr.Out, seq), "life"
			}
			if unsure[seq] {
				pr.Unsure = addSeq(pr.Unsure, seq)
			}
		}
		ended := rapid.Bool().Draw(t, "ended")
		got := inherited(pr, func(life string) bool { return ended && life == "life" })
		if len(got.Out) > 0 || got.OutBy != "" {
			t.Fatalf("out: %v", got)
		}
		for seq := range uint64(seqs) {
			want, n := attempts[seq], 0
			if ended && out[seq] {
				want--
			}
			for _, r := range got.Attempts {
				if holds(seq)(r.SeqRange) {
					n += r.Attempts
				}
			}
			if n != want {
				t.Errorf("seq %d has %d attempts, want %d: %+v", seq, n, want, got)
			}
			if is := slices.ContainsFunc(got.Unsure, holds(seq)); is != (unsure[seq] || out[seq] && !ended) {
				t.Errorf("seq %d is unsure: %v: %+v", seq, is, got)
			}
		}
	})
}
