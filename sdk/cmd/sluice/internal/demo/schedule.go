package demo

import (
	"math"
	"time"
)

// Schedule says what happens when, counted from the demo's start.
type Schedule struct {
	Least, Most float64       // orders a second
	Period      time.Duration // from the least to the most and back

	FirstBad, BadEvery time.Duration // when payments has a bad deployment
	BadFor             time.Duration // how long it stays
	RedriveAfter       time.Duration // what has failed is delivered again that long after it
}

// Usual is the schedule for people who watch.
var Usual = Schedule{
	Least: 2, Most: 30, Period: 2 * time.Minute,
	FirstBad: time.Minute, BadEvery: 5 * time.Minute, BadFor: 30 * time.Second, RedriveAfter: 15 * time.Second,
}

// rate is how many orders a second come.
func (s Schedule) rate(passed time.Duration) float64 {
	return s.Least + (s.Most-s.Least)*(1-math.Cos(2*math.Pi*passed.Seconds()/s.Period.Seconds()))/2
}

// bad reports whether the bad deployment runs.
func (s Schedule) bad(passed time.Duration) bool {
	return passed >= s.FirstBad && (passed-s.FirstBad)%s.BadEvery < s.BadFor
}
