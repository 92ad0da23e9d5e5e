package fleet

import "time"

// The division of the recent past.
const (
	// historySlots is how many seconds a history has.
	historySlots = 60
	// rateSlots is over how many seconds a rate is measured.
	rateSlots = 5
	// lagSlots is how many seconds before now the last second of a rate or history ended at the
	// latest: sidecars report every second, and reports under way would show as a dip.
	lagSlots = 2
)

// Sizes of rings: the slots that are read, and the slots still being filled.
const (
	historyRing = historySlots + lagSlots
	rateRing    = rateSlots + lagSlots
)

// ring counts allowed and denied events in each of the last seconds. Times are durations since some
// start.
type ring struct {
	slots []Point
	last  int64 // the second of the newest slot
	first int64 // the second in which counting began
}

func newRing(size int, at time.Duration) ring {
	return ring{slots: make([]Point, size), last: second(at), first: second(max(at-reportEvery, 0))}
}

func second(at time.Duration) int64 { return int64(at / time.Second) }

// slot returns the slot of a second, or nil if it is over or in the future.
func (r *ring) slot(s int64) *Point {
	size := int64(len(r.slots))
	if s < 0 || s > r.last || s <= r.last-size {
		return nil
	}
	return &r.slots[s%size]
}

// add counts events spread evenly over some time before at. Events of a second that is over count
// in the oldest slot: none is lost.
func (r *ring) add(at, over time.Duration, p Point) {
	for s := max(r.last+1, second(at)-int64(len(r.slots))+1); s <= second(at); s++ {
		r.last = s
		*r.slot(s) = Point{}
	}
	oldest := max(r.last-int64(len(r.slots))+1, 0)
	over = min(over, at)
	if over <= 0 {
		count(r.slot(max(second(at), oldest)), p, 1)
		return
	}
	from := at - over
	for s := second(from); s <= second(at); s++ {
		start, end := time.Duration(s)*time.Second, time.Duration(s+1)*time.Second
		part := min(end, at) - max(start, from)
		count(r.slot(max(s, oldest)), p, float64(part)/float64(over))
	}
}

// count adds a part of some events to a sum.
func count(sum *Point, p Point, part float64) {
	sum.Allowed += p.Allowed * part
	sum.Denied += p.Denied * part
}

// rate returns the recent events per second.
func (r *ring) rate(now time.Duration) Point {
	last := second(now) - lagSlots
	n := min(last-r.first+1, rateSlots)
	if n <= 0 {
		return Point{}
	}
	var sum Point
	for s := last - n + 1; s <= last; s++ {
		if p := r.slot(s); p != nil {
			count(&sum, *p, 1/float64(n))
		}
	}
	return sum
}

// history returns the events of each of the last seconds, the latest last.
func (r *ring) history(now time.Duration) []Point {
	out := make([]Point, historySlots)
	for i := range out {
		if p := r.slot(second(now) - lagSlots - historySlots + 1 + int64(i)); p != nil {
			out[i] = *p
		}
	}
	return out
}
