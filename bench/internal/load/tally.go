package load

import (
	"errors"
	"sync/atomic"

	"github.com/sluice-bus/sluice/bench/internal/latency"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Tally is what was counted. It is for one goroutine at a time.
type Tally struct {
	Done       int // events that were published, or consumed
	Duplicates int
	Failed     int
	Errors     map[string]int // of the failed ones, by code
	Latency    *latency.Histogram
}

func newTally() *Tally { return &Tally{Errors: map[string]int{}, Latency: latency.New()} }

// lostConnection is counted for events whose answer never came.
const lostConnection = "connection_lost"

// fail counts n events that failed with err.
func (t *Tally) fail(err error, n int) {
	code := lostConnection
	if refusal, ok := errors.AsType[*wire.Error](err); ok {
		code = string(refusal.Code)
	}
	t.Failed += n
	t.Errors[code] += n
}

// merge adds what other counted.
func (t *Tally) merge(other *Tally) {
	t.Done += other.Done
	t.Duplicates += other.Duplicates
	t.Failed += other.Failed
	for code, n := range other.Errors {
		t.Errors[code] += n
	}
	t.Latency.Merge(other.Latency)
}

// Sum returns what several counted together. Those that are nil counted nothing.
func Sum(tallies []*Tally) *Tally {
	sum := newTally()
	for _, t := range tallies {
		if t != nil {
			sum.merge(t)
		}
	}
	return sum
}

// Count counts events that are read otherwise than by a Consumer.
type Count struct{ n atomic.Int64 }

// One counts an event.
func (c *Count) One() { c.n.Add(1) }

// Done is how many there were.
func (c *Count) Done() int64 { return c.n.Load() }

// Tally is what was counted.
func (c *Count) Tally() *Tally {
	t := newTally()
	t.Done = int(c.Done())
	return t
}

// RateLimited reports whether a refusal is for lack of tokens: the run then measures a limit and
// not the sidecar.
func RateLimited(err error) bool { return errors.Is(err, &wire.Error{Code: wire.RateLimited}) }
