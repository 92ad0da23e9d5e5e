package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Inherit is the progress with which the next owner continues after an earlier one. A delivery
// under way counts an attempt, unless the owner ended in order, with that as its last save. A delay
// lasts no longer than it would have for that owner, whose clock may be ahead.
func Inherit(pr eventlog.Progress, ended func(life string) bool, now time.Time) eventlog.Progress {
	over := pr.OutBy != "" && ended(pr.OutBy)
	switch {
	case len(pr.Out) == 0:
	case over:
		pr.Attempts = lessOne(pr.Attempts, pr.Out)
	default:
		pr.Unsure = union(pr.Unsure, pr.Out)
	}
	pr.Delays, pr.Redrives = slices.Clone(pr.Delays), slices.Clone(pr.Redrives)
	for i := range pr.Delays {
		pr.Delays[i].Until = noLater(pr.Delays[i].Until, pr.Delays[i].Left, now)
	}
	for i := range pr.Redrives {
		r := &pr.Redrives[i]
		switch {
		case !r.Out:
		case over:
			r.Attempts--
		default:
			r.Unsure = true
		}
		r.Out = false
		r.Until = noLater(r.Until, r.Left, now)
	}
	pr.Out, pr.OutBy = nil, ""
	return pr
}

// noLater is the earlier of the saved time until and the time when the saved rest, left, has passed
// from now on.
func noLater(until, left int64, now time.Time) int64 {
	return min(until, now.UnixMilli()+left)
}

// lessOne takes one attempt from the seqs of the ranges, which are ascending.
func lessOne(attempts []eventlog.AttemptRange, ranges []eventlog.SeqRange) (less []eventlog.AttemptRange) {
	for _, a := range attempts {
		for seq := a.First; seq <= a.Last; seq++ {
			n := a.Attempts
			i, _ := slices.BinarySearchFunc(ranges, seq, func(r eventlog.SeqRange, seq uint64) int { return cmp.Compare(r.Last, seq) })
			if i < len(ranges) && ranges[i].First <= seq {
				n--
			}
			less = addAttempts(less, seq, n)
		}
	}
	return less
}

// union is the seqs of both, ascending and disjoint.
func union(a, b []eventlog.SeqRange) (all []eventlog.SeqRange) {
	both := slices.Concat(a, b)
	slices.SortFunc(both, func(x, y eventlog.SeqRange) int { return cmp.Compare(x.First, y.First) })
	for _, r := range both {
		all = addRange(all, r)
	}
	return all
}
