package load

import "time"

// clock tells the time of day in nanoseconds, from one reading of it and the monotonic clock:
// differences are exact within the process.
type clock struct {
	start time.Time
	wall  int64
}

func newClock() clock {
	now := time.Now()
	return clock{start: now, wall: now.UnixNano()}
}

func (c clock) now() int64 { return c.wall + int64(time.Since(c.start)) }

// schedule says when each send of an open load is meant to happen.
type schedule struct {
	start    int64   // of the clock
	interval float64 // nanoseconds between sends; 0: there is no schedule
}

func newSchedule(start int64, eventsPerSecond float64, perSend int) schedule {
	if eventsPerSecond <= 0 {
		return schedule{}
	}
	return schedule{start: start, interval: 1e9 * float64(perSend) / eventsPerSecond}
}

func (s schedule) open() bool { return s.interval > 0 }

// at is the time of the send with that number, from 0.
func (s schedule) at(number int) int64 { return s.start + int64(float64(number)*s.interval) }

// wait returns when the time of a send has come, or with false when stop closes before it. Long
// waits are made of short ones, so that stop is seen.
//
// Sleep is preciseSleep where few wait at once: each holds a thread of the system.
func (c clock) wait(until int64, stop <-chan struct{}, sleep func(time.Duration)) bool {
	const longest = 20 * time.Millisecond
	for {
		select {
		case <-stop:
			return false
		default:
		}
		left := time.Duration(until - c.now())
		if left <= 0 {
			return true
		}
		sleep(min(left, longest))
	}
}
