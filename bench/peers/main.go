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
	"strings"
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

// settings are the flags.
type settings struct {
	rounds                                 int
	length                                 time.Duration
	size                                   int
	dir, mongodb, json, html, readme, only string
}

func flags() *settings {
	s := new(settings)
	flag.IntVar(&s.rounds, "rounds", 5, "how many rounds, all in turn")
	flag.DurationVar(&s.length, "for", 1500*time.Millisecond, "how long a round of a case takes")
	flag.IntVar(&s.size, "size", 256, "bytes of a payload")
	flag.StringVar(&s.dir, "dir", ".", "a folder on the disk to measure")
	flag.StringVar(&s.mongodb, "mongodb", os.Getenv("MONGODB_URI"), "a MongoDB, for its driver alone and a sidecar on it (default: MONGODB_URI)")
	flag.StringVar(&s.json, "json", "", "write the results as JSON to this file")
	flag.StringVar(&s.html, "html", "", "write the results as a page to this file")
	flag.StringVar(&s.readme, "readme", "", "put the results into this page, between its marks")
	flag.StringVar(&s.only, "only", "", "measure the peers alone whose name has this in it, beside Sluice")
	flag.Parse()
	return s
}

func run(ctx context.Context) (err error) {
	s := flags()
	lab, err := scenarios.NewLab(s.dir)
	if err != nil {
		return err
	}
	lab.Size, lab.For = s.size, s.length
	node := &rabbit{}
	all := append(peers(lab, node), mongoPeers(lab, s.mongodb)...)
	all = slices.DeleteFunc(all, func(p peer) bool { return !strings.HasPrefix(p.name, "Sluice") && !strings.Contains(p.name, s.only) })
	jobs := make([][]*scenarios.Job, len(all))
	for i, p := range all {
		jobs[i] = p.jobs(lab)
	}
	results := &report.Results{
		Program: "bench/peers", Version: program.Version(), At: time.Now(), Rounds: s.rounds, Systems: map[string]string{},
		Flags: map[string]any{"for": s.length.String(), "size": s.size}, Machine: lab.Machine(),
	}
	results.Rows, err = scenarios.Measure(ctx, transpose(jobs), s.rounds, func(_ *scenarios.Lab, label string) func() {
		line := terminal.NewProgress(os.Stderr, label, 0)
		line.Add(0)
		return line.Finish
	})
	if err = errors.Join(err, node.stop(), lab.Close()); err != nil {
		return err
	}
	for _, p := range all {
		results.Systems[p.name] = p.version()
	}
	err = errors.Join(results.Table(os.Stdout), ratios(os.Stdout, results.Rows), report.Write(s.json, results.JSON), report.Write(s.html, results.HTML))
	if s.readme != "" {
		err = errors.Join(err, replaceTable(s.readme, results))
	}
	return err
}

// peers are the systems with a store of their own. Sluice is the first: others are compared with it.
func peers(lab *scenarios.Lab, node *rabbit) []peer {
	return []peer{
		{
			name: "Sluice", durability: "fsynced", version: program.Version,
			start: func(ctx context.Context, _ string) (scenarios.System, error) { return lab.StartUnlimited(ctx) },
		},
		jetStream(false), jetStream(true), redisStreams("everysec"), redisStreams("always"), node.quorumQueue(), node.streams(),
	}
}

// mongoPeers are a sidecar on a MongoDB, and its driver alone.
func mongoPeers(lab *scenarios.Lab, url string) []peer {
	on := *lab
	on.Store = url
	missing := ""
	if url == "" {
		missing = "MONGODB_URI is not set"
	}
	return []peer{
		{
			name: "Sluice on MongoDB", durability: "majority, journaled", version: program.Version, missing: missing,
			start: func(ctx context.Context, _ string) (scenarios.System, error) { return on.StartUnlimited(ctx) },
		},
		{
			name: "MongoDB driver", durability: "majority, journaled", version: func() string { return "" }, missing: missing, publishes: true,
			start: func(ctx context.Context, _ string) (scenarios.System, error) { return on.StartRaw(ctx) },
		},
	}
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
