package scenarios

import (
	"context"
	"fmt"

	"github.com/sluice-bus/sluice/bench/report"
)

// A Job is one row to measure.
type Job struct {
	Row      *report.Row
	scenario *Scenario
	lab      *Lab
	params   Params
	rounds   []*report.Round
}

// Jobs are the cases of scenarios in a lab. Those that it cannot run have a row that says why.
func Jobs(lab *Lab, all []*Scenario, system, durability string) (jobs []*Job) {
	for _, s := range all {
		for _, one := range s.Cases {
			p := one.WithDefaults(lab.Size)
			row := &report.Row{
				Scenario: s.Name, Case: one.Name, System: system, Durability: durability, Parameters: p, Skipped: s.Needs.Missing(lab),
			}
			jobs = append(jobs, &Job{Row: row, scenario: s, lab: lab, params: p})
		}
	}
	return jobs
}

// Measure measures all jobs in turn, round by round, so that what changes on the machine meanwhile meets all of them. Show is called
// before each, and what it returns after it.
func Measure(
	ctx context.Context, jobs []*Job, rounds int, show func(lab *Lab, label string) (done func()),
) (rows []*report.Row, err error) {
	for round := range rounds {
		for k, j := range jobs {
			if j.Row.Skipped != "" {
				continue
			}
			done := show(j.lab, fmt.Sprintf("round %d of %d, %d of %d: %s", round+1, rounds, k+1, len(jobs), j.Row.Name()))
			r, err := j.scenario.Run(ctx, j.lab, j.params)
			done()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", j.Row.Name(), err)
			}
			j.rounds = append(j.rounds, r)
		}
	}
	for _, j := range jobs {
		if j.rounds != nil {
			j.Row.Fill(j.rounds)
		}
		rows = append(rows, j.Row)
	}
	return rows, nil
}
