package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/latency"
)

// A Round is one measurement of a case.
type Round struct {
	Events    int
	Published bool // else they were consumed
	Took      time.Duration
	// Measures says from where to where Latency goes; nil: there is none.
	Measures string
	Latency  *latency.Histogram

	Failed, Duplicates int
	Errors             map[string]int

	// CPU is what the system used, and Memory its bytes resident at the end; 0 where it runs elsewhere.
	CPU    time.Duration
	Memory int64
	// Series is how many events were done in each tenth of a second.
	Series []int64
	// Figures are the scenario's own, with their units in their names.
	Figures map[string]float64
	// Unknown says which figures could not be asked for, and why; "": none.
	Unknown string
	// Points show how a cost changes, and PointsOf names their parts.
	Points   []Point
	PointsOf [3]string

	Evidence Evidence
}

// A Point is a cost, or two, at a size.
type Point struct {
	At    float64 `json:"at"`
	Value float64 `json:"value"`
	Other float64 `json:"other,omitempty"`
}

// Add appends a later part of the same round. It changes the round, and nil is an empty one.
func (r *Round) Add(part *Round) *Round {
	if r == nil {
		return part
	}
	r.Events, r.Took, r.CPU, r.Memory = r.Events+part.Events, r.Took+part.Took, r.CPU+part.CPU, part.Memory
	r.Failed, r.Duplicates = r.Failed+part.Failed, r.Duplicates+part.Duplicates
	for code, n := range part.Errors {
		r.Errors[code] += n
	}
	r.Latency.Merge(part.Latency)
	r.Series, r.Points = append(r.Series, part.Series...), append(r.Points, part.Points...)
	r.Evidence = r.Evidence.add(part.Evidence)
	return r
}

// A Row is all rounds of a case. Times are milliseconds as decimals.
type Row struct {
	Scenario   string `json:"scenario"`
	Case       string `json:"case"`
	System     string `json:"system"`
	Durability string `json:"durability"`
	Published  *int   `json:"published,omitempty"` // of all rounds
	Consumed   *int   `json:"consumed,omitempty"`
	// MS is the time of all rounds. MPS is the median of the rounds, which lie within Spread.
	MS     float64    `json:"ms"`
	MPS    float64    `json:"mps"`
	Spread [2]float64 `json:"spread"`
	// Rounds are the figures of each round, in turn.
	Rounds []RoundFigures `json:"rounds"`
	// Measures says from where to where the latencies go; "": there are none. They are of all rounds together.
	Measures string `json:"measures,omitempty"`
	*latency.Summary
	// P99Spread is within which the p99 of the rounds lie.
	P99Spread [2]float64 `json:"p99_spread,omitzero"`
	// Curve is the latency at each percentile of latency.Percentiles.
	Curve []float64 `json:"curve,omitempty"`
	// EventsPerCPUSecond and MemoryMiB are the system's; 0 where it runs elsewhere.
	EventsPerCPUSecond float64 `json:"events_per_cpu_second,omitempty"`
	MemoryMiB          float64 `json:"memory_mib,omitempty"`
	// ClientEventsPerCPUSecond is the bench's: what the system's client costs, beside the bench's own counting.
	ClientEventsPerCPUSecond float64            `json:"client_events_per_cpu_second,omitempty"`
	LimitedBy                string             `json:"limited_by"`
	Failed                   int                `json:"failed"`
	Errors                   map[string]int     `json:"errors,omitempty"`
	Duplicates               int                `json:"duplicates,omitempty"`
	Figures                  map[string]float64 `json:"figures,omitempty"`
	Unknown                  string             `json:"unknown,omitempty"` // which figures are not known, and why
	Series                   []int64            `json:"series,omitempty"`  // of the median round
	Points                   []Point            `json:"points,omitempty"`
	PointsOf                 *[3]string         `json:"points_of,omitempty"`
	Parameters               any                `json:"parameters"`
	// Skipped says why the case was not measured; "": it was.
	Skipped string `json:"skipped,omitempty"`
}

// RoundFigures are those of one round: what is compared with the same round of another system.
type RoundFigures struct {
	MPS float64 `json:"mps"`
	P50 float64 `json:"p50,omitempty"`
	P99 float64 `json:"p99,omitempty"`
}

// Fill makes the row of what its rounds found. There is at least one.
func (row *Row) Fill(rounds []*Round) {
	first, events, took, cpu := rounds[0], 0, time.Duration(0), time.Duration(0)
	var rates, tails []float64
	var evidence Evidence
	all := latency.New()
	row.Errors = map[string]int{}
	for _, r := range rounds {
		events, took, cpu = events+r.Events, took+r.Took, cpu+r.CPU
		rates = append(rates, r.rate())
		row.Failed, row.Duplicates = row.Failed+r.Failed, row.Duplicates+r.Duplicates
		for code, n := range r.Errors {
			row.Errors[code] += n
		}
		row.MemoryMiB = max(row.MemoryMiB, round(float64(r.Memory)/(1<<20), 1))
		figures := RoundFigures{MPS: round(r.rate(), 1)}
		if r.Latency != nil {
			all.Merge(r.Latency)
			summary := r.Latency.Summary()
			figures.P50, figures.P99 = summary.P50, summary.P99
			tails = append(tails, summary.P99)
		}
		row.Rounds = append(row.Rounds, figures)
		evidence = evidence.add(r.Evidence)
	}
	if row.Consumed = &events; first.Published {
		row.Published, row.Consumed = &events, nil
	}
	row.MS, row.LimitedBy = latency.Milliseconds(took), evidence.Limit()
	if cpu > 0 {
		row.EventsPerCPUSecond = round(float64(events)/cpu.Seconds(), 0)
	}
	if client := evidence.Client; client > 0 {
		row.ClientEventsPerCPUSecond = round(float64(events)/client.Seconds(), 0)
	}
	middle := rounds[medianOf(rates)]
	row.MPS, row.Spread = round(middle.rate(), 1), [2]float64{round(slices.Min(rates), 1), round(slices.Max(rates), 1)}
	row.Series, row.Points = middle.Series, middle.Points
	if middle.Points != nil {
		row.PointsOf = &middle.PointsOf
	}
	if summary := all.Summary(); summary.N > 0 {
		row.Measures, row.Summary, row.Curve = first.Measures, &summary, all.Curve()
		row.P99Spread = [2]float64{slices.Min(tails), slices.Max(tails)}
	}
	row.Figures, row.Unknown = figures(rounds), first.Unknown
}

// figures are the medians of the rounds' own figures.
func figures(rounds []*Round) map[string]float64 {
	all := map[string]float64{}
	for name := range maps.Keys(rounds[0].Figures) {
		var values []float64
		for _, r := range rounds {
			values = append(values, r.Figures[name])
		}
		all[name] = round(values[medianOf(values)], 3)
	}
	return all
}

func (r *Round) rate() float64 {
	if r.Took <= 0 {
		return 0
	}
	return float64(r.Events) / r.Took.Seconds()
}

// medianOf is the index of the median; of an even number the lower one, so that it is one that was measured.
func medianOf(values []float64) int {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	return order[(len(order)-1)/2]
}

func round(value float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(value*unit) / unit
}
