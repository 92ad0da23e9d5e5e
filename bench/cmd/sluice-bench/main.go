// Command sluice-bench measures a node: what it carries, at which latency, what that costs and what limits it. Each command is a
// file of its own.
package main

import "github.com/sluice-bus/sluice/internal/program"

type commandLine struct {
	Run       runCommand       `cmd:"" help:"Start sidecars, measure what they carry, and say what limits them."`
	List      listCommand      `cmd:"" help:"List the scenarios of run."`
	Compare   compareCommand   `cmd:"" help:"Compare two results of run."`
	Publish   publishCommand   `cmd:"" help:"Load a running sidecar with publishes, and measure until their OK."`
	Subscribe subscribeCommand `cmd:"" help:"Consume from a running sidecar and ack, and measure from the publish."`
}

func spec() program.Spec {
	return program.Spec{
		Name: "sluice-bench",
		Description: "Measures the throughput and latency of sidecars. run starts the sidecars that it needs; publish and " +
			"subscribe load a running one: start it with --policies bench/policies.yaml, since the default policy limits publishes.",
		Examples: `sluice-bench run
sluice-bench run publish roundtrip --html report.html
sluice-bench run --find-max 'p99<10ms'
sluice-bench compare main.json branch.json
sluice-bench publish --connections 64 --depth 1
sluice-bench publish --rate 2000 --events 20000
sluice-bench subscribe --publish-rate 2000 --events 20000
sluice-bench subscribe --drain --events 100000 --max-batch 100`,
		Settings: new(commandLine),
	}
}

func main() { program.Main(spec()) }
