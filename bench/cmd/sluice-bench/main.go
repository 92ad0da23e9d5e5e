// Command sluice-bench loads a running sidecar and reports its rates and latencies. Each command is
// a file of its own; what they share is in run.go.
package main

import "github.com/sluice-bus/sluice/internal/program"

type commandLine struct {
	Publish   publishCommand   `cmd:"" help:"Publish events, and measure until their OK."`
	Subscribe subscribeCommand `cmd:"" help:"Consume and ack events, and measure from their publish."`
}

func spec() program.Spec {
	return program.Spec{
		Name: "sluice-bench",
		Description: "Loads a running sidecar: JSON on standard output, and a table on a terminal. " +
			"By default a sidecar limits the rate of publishes: start it with --policies bench/policies.yaml.",
		Examples: `sluice-bench publish --events 100000
sluice-bench publish --connections 64 --depth 1
sluice-bench publish --batch 500 --transport http
sluice-bench publish --rate 2000 --events 20000
sluice-bench subscribe --publish-rate 2000 --events 20000
sluice-bench subscribe --drain --events 100000 --max-batch 100`,
		Settings: new(commandLine),
	}
}

func main() { program.Main(spec()) }
