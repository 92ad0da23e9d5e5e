package fleet

import "time"

// How the recent past is cut.
const (
	// historySlots is how many seconds a history has.
	historySlots = 60
	// rateSlots is over how many seconds a rate is measured.
	rateSlots = 5
	// lagSlots is how many seconds before now the last one of a rate or history
	// ended at the latest: sidecars report every second, and what is still on
	// its way would show as a dip.
	lagSlots = 2
)

// Sizes of rings: what is read from them, and what is still being filled.
const (
	historyRing = historySlots + lagSlots
	rateRing    = rateSlots + lagSlots
)

// ring counts what passed and what did not in each of the last seconds. Times
// are durations since some start.
type ring struct {
	slots []Point
	last  int64 // the second of the newest slot
	first int64 // the second in which counting began
}

func newRing(size int, at time.Duration) ring {
	return ring{slots: make([]Point, size), last: second(at), first: second(max(at-reportEvery, 0))}
}

func second(at time.Duration) int64 { return int64(at / time.Second) }

// slot is the one of a second, or nil where that is over or yet to come.
func (r *ring) slot(s int64) *Point {
	size := int64(len(r.slots))
	if s < 0 || s > r.last || s <= r.last-size {
		return nil
	}
	return &r.slots[s%size]
}

// add counts what happened evenly in some time before at. What would belong to
// a second that is over counts in the oldest one that there is: nothing is lost.
func (r *ring) add(at, over time.Duration, p Point) {
	for s := max(r.last+1, second(at)-int64(len(r.slots))+1); s <= second(at); s++ {
		r.last = s
		*r.slot(s) = Point{}
	}
	oldest := max(r.last-int64(len(r.slots))+1, 0)
	over = min(over, at)
	if over <= 0 {
		r.slot(max(second(at), oldest)).count(p, 1)
		return
	}
	from := at - over
	for s := second(from); s <= second(at); s++ {
		start, end := time.Duration(s)*time.Second, time.Duration(s+1)*time.Second
		part := min(end, at) - max(start, from)
		r.slot(max(s, oldest)).count(p, float64(part)/float64(over))
	}
}

func (p *Point) count(q Point, part float64) {
	p.Allowed += q.Allowed * part
	p.Denied += q.Denied * part
}

// rate is what passed per second lately.
func (r *ring) rate(now time.Duration) Point {
	last := second(now) - lagSlots
	n := min(last-r.first+1, rateSlots)
	if n <= 0 {
		return Point{}
	}
	var sum Point
	for s := last - n + 1; s <= last; s++ {
		if p := r.slot(s); p != nil {
			sum.count(*p, 1/float64(n))
		}
	}
	return sum
}

// history is what passed in each of the last seconds, the latest last.
func (r *ring) history(now time.Duration) []Point {
	out := make([]Point, historySlots)
	for i := range out {
		if p := r.slot(second(now) - lagSlots - historySlots + 1 + int64(i)); p != nil {
			out[i] = *p
		}
	}
	return out
}
