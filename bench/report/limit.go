package report

import (
	"fmt"
	"time"
)

// Evidence is what was seen while a system was loaded, from which follows what limited it.
type Evidence struct {
	Took  time.Duration
	Cores int
	// Busy is which part of all processors' time was used, by anybody.
	Busy float64
	// Server and Client are the CPU of the system and of the bench.
	Server, Client time.Duration
	// Appends are the writes of the system's log, Appending how long they took together.
	Appends   int64
	Appending time.Duration
	// Sync is how long the disk takes to make a block durable.
	Sync time.Duration
	// RateLimited counts refusals by a policy's limit.
	RateLimited int
	// Rate is the events a second that were asked for; 0: as many as it goes. Events is how many were done.
	Rate   float64
	Events int
	// InTurn is true where the bench does one thing after the other.
	InTurn bool
	// Shared is true where the log is in a MongoDB.
	Shared bool
	// Killed is true where a sidecar was killed under the load.
	Killed bool
}

// add is the evidence of two parts, one after the other.
func (e Evidence) add(other Evidence) Evidence {
	sum := other
	sum.Took, sum.Server, sum.Client = e.Took+other.Took, e.Server+other.Server, e.Client+other.Client
	sum.Events = e.Events + other.Events
	sum.Appends, sum.Appending, sum.RateLimited = e.Appends+other.Appends, e.Appending+other.Appending, e.RateLimited+other.RateLimited
	if sum.Took > 0 {
		sum.Busy = (e.Busy*e.Took.Seconds() + other.Busy*other.Took.Seconds()) / sum.Took.Seconds()
	}
	return sum
}

const (
	// allBusy is from which part of their time on processors are what limits, since there is always some waiting, too.
	allBusy = 0.85
	// mostlyAppending is from which part of the time on a log's writes are what limits.
	mostlyAppending = 0.6
	// held is from which part of the rate that was asked for it is what limits: the last answers come after the last send.
	held = 0.95
)

// Limit says what limited a load.
func (e Evidence) Limit() string {
	switch {
	case e.RateLimited > 0:
		return "a policy's limit"
	case e.Rate > 0 && float64(e.Events) >= held*e.Rate*e.Took.Seconds():
		return "the rate that was asked for"
	case e.Killed:
		return "the takeover: events waited until others delivered for the sidecar that was killed"
	case e.Busy >= allBusy && e.Client+e.Server < e.Took*time.Duration(e.Cores)/2:
		others := time.Duration(e.Busy*float64(e.Took)*float64(e.Cores)) - e.Server - e.Client
		return fmt.Sprintf("CPU, most of it other programs' (%s; the system's %.1f, the bench's %.1f)", e.cores(others),
			e.used(e.Server), e.used(e.Client))
	case e.Busy >= allBusy && e.Client > e.Server:
		return fmt.Sprintf("CPU, more of it the bench's (%s) than the system's (%s)", e.cores(e.Client), e.cores(e.Server))
	case e.Busy >= allBusy:
		return fmt.Sprintf("CPU, more of it the system's (%s) than the bench's (%s)", e.cores(e.Server), e.cores(e.Client))
	case e.Took > 0 && e.Appending.Seconds() >= mostlyAppending*e.Took.Seconds() && e.Shared:
		return fmt.Sprintf("MongoDB: %d writes of the log, %v each", e.Appends, e.each())
	case e.Took > 0 && e.Appending.Seconds() >= mostlyAppending*e.Took.Seconds():
		return fmt.Sprintf("the disk: %d writes of the log, %v each (a sync alone takes %v)", e.Appends, e.each(),
			e.Sync.Round(10*time.Microsecond))
	}
	if e.InTurn {
		return "waiting for one answer after the other"
	}
	return "waiting for answers: more connections, depth or batches do more"
}

// each is how long one write of the log takes.
func (e Evidence) each() time.Duration {
	return (e.Appending / time.Duration(max(1, e.Appends))).Round(10 * time.Microsecond)
}

// cores is CPU time as a number of processors.
func (e Evidence) cores(cpu time.Duration) string {
	return fmt.Sprintf("%.1f of %d cores", e.used(cpu), e.Cores)
}

func (e Evidence) used(cpu time.Duration) float64 { return cpu.Seconds() / max(e.Took.Seconds(), 1e-9) }
