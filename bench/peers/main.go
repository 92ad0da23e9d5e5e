// Command peers runs the bench's scenarios on other systems beside a sidecar, in turn, each through its own best client: what
// sluice-bench's figures are to be compared with. It is a module of its own, for what it needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/bench/scenarios"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "serve-nats" {
		if err := serveNATS(os.Args[len(os.Args)-1], os.Args[2] == "sync"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// mostStored bounds the events that are consumed: a peer that syncs each event by itself takes long to store them.
const mostStored = 20_000

// portable are the scenarios that need nothing but publishes and deliveries.
func portable() []*scenarios.Scenario {
	publish := *scenarios.Named("publish")
	publish.Cases = publish.Cases[:4] // the rest are of HTTP
	subscribe := *scenarios.Named("subscribe")
	subscribe.Cases = slices.Clone(subscribe.Cases)
	for i := range subscribe.Cases {
		subscribe.Cases[i].Events = mostStored
	}
	return []*scenarios.Scenario{&publish, &subscribe, scenarios.Named("roundtrip")}
}

func run(ctx context.Context) (err error) {
	var (
		rounds = flag.Int("rounds", 5, "how many rounds, all in turn")
		length = flag.Duration("for", 3*time.Second, "how long a round of a case takes")
		size   = flag.Int("size", 256, "bytes of a payload")
		dir    = flag.String("dir", ".", "a folder on the disk to measure")
		json   = flag.String("json", "", "write the results as JSON to this file")
		html   = flag.String("html", "", "write the results as a page to this file")
	)
	flag.Parse()
	lab, err := scenarios.NewLab(*dir)
	if err != nil {
		return err
	}
	lab.Size, lab.For = *size, *length
	sluice := *lab
	sluice.Start = func(ctx context.Context) (scenarios.System, error) { return sluice.StartUnlimited(ctx) }
	jobs := [][]*scenarios.Job{scenarios.Jobs(&sluice, portable(), "Sluice", "fsynced")}
	versions := map[string]string{"Sluice": program.Version()}
	for _, p := range []peer{jetStream(false), jetStream(true), redisStreams("everysec"), redisStreams("always")} {
		own := *lab
		own.Start = func(ctx context.Context) (scenarios.System, error) {
			dir, err := os.MkdirTemp(lab.Dir, "peer-*")
			if err != nil {
				return nil, err
			}
			return p.start(ctx, dir)
		}
		rows := scenarios.Jobs(&own, portable(), p.name, p.durability)
		if p.needs != "" && !installed(p.needs) {
			for _, j := range rows {
				j.Row.Skipped = p.needs + " is not installed"
			}
		}
		jobs, versions[p.name] = append(jobs, rows), p.version
	}
	results := &report.Results{
		Program: "bench/peers", Version: program.Version(), At: time.Now(), Rounds: *rounds, Systems: versions,
		Machine: lab.Machine(),
	}
	results.Rows, err = scenarios.Measure(ctx, transpose(jobs), *rounds, func(_ *scenarios.Lab, label string) func() {
		line := terminal.NewProgress(os.Stderr, label, 0)
		line.Add(0)
		return line.Finish
	})
	if err = errors.Join(err, lab.Close()); err != nil {
		return err
	}
	return errors.Join(results.Table(os.Stdout), ratios(os.Stdout, results.Rows), report.Write(*json, results.JSON), report.Write(*html, results.HTML))
}

// transpose puts the same case of all systems one after another, so that they are measured within seconds.
func transpose(systems [][]*scenarios.Job) (jobs []*scenarios.Job) {
	for i := range systems[0] {
		for _, rows := range systems {
			jobs = append(jobs, rows[i])
		}
	}
	return jobs
}
