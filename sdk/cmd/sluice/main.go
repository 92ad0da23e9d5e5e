// Command sluice is the command-line client: it publishes, subscribes, replays and exports, shows
// what a sidecar holds, and asks the control plane about policies and the fleet. Each command has a
// file of its own, the policy commands several; client.go, controlplane.go, output.go and screen.go
// have their common code.
package main

import (
	"errors"

	"github.com/sluice-bus/sluice/internal/program"
)

// The exit statuses beside those of every program.
const (
	// statusNotFound says that there is no such topic, group, policy, event or sidecar.
	statusNotFound = 3
	// statusPart says that something was done, or shown, and something was not.
	statusPart = 4
)

// errPart is wrapped by the errors of what was done in part.
var errPart = errors.New("done in part")

// partError ends a command that did a part of its work.
type partError struct{ error }

func (partError) Is(target error) bool { return target == errPart }

func statusOf(err error) int {
	switch {
	case errors.Is(err, errPart):
		return statusPart
	case isNotFound(err):
		return statusNotFound
	}
	return program.StatusFailure
}

// commandLine is everything that can be given. asks names the servers that a command asks; it takes only flags about these, whose
// tag of names one of them.
type commandLine struct {
	client

	Pub       pubCommand       `cmd:"" asks:"app" help:"Publish one event, or one for each line."`
	Sub       subCommand       `cmd:"" asks:"app" help:"Subscribe to a topic and print its events."`
	Events    eventsCommand    `cmd:"" asks:"app replay store" help:"Print the last events of a topic and follow it, or erase events."`
	Replay    replayCommand    `cmd:"" asks:"app replay store" help:"Print events that were published before."`
	Export    exportCommand    `cmd:"" asks:"app replay store" help:"Write a topic to a file."`
	Import    importCommand    `cmd:"" asks:"app" help:"Publish the events of an export."`
	Latest    latestCommand    `cmd:"" asks:"app store" help:"Print the latest event of each key, and the positions behind which to go on."`
	Status    statusCommand    `cmd:"" asks:"ops" help:"Show the sidecar's state."`
	Topics    topicsCommand    `cmd:"" asks:"app store" help:"List, make and delete topics."`
	Trace     traceCommand     `cmd:"" asks:"app store" help:"Show the life of one event: its place, and its state in each group."`
	Groups    groupsCommand    `cmd:"" asks:"app store" help:"Show, move and delete the consumer groups of a topic: lag, members, and why members are blocked."`
	DLQ       dlqCommand       `cmd:"" asks:"app store" name:"dlq" help:"Show dead letters, deliver them again, or remove them."`
	Scheduled scheduledCommand `cmd:"" asks:"app store" help:"List events that are put into the log later, and cancel them."`
	Captures  capturesCommand  `cmd:"" asks:"app" help:"Publish the documents of captured collections once more."`
	Policy    policyCommand    `cmd:"" asks:"plane" help:"Show and change the policies of the control plane."`
	Schema    schemaCommand    `cmd:"" asks:"app plane" help:"Check, list and print schemas, and describe topics as AsyncAPI."`
	Overview  overviewCommand  `cmd:"" asks:"plane" help:"Show what is wrong with the fleet, what to do about it, and how much it does."`
	Top       topCommand       `cmd:"" asks:"plane" help:"Show the overview and the busiest topics, live on a terminal."`
	Fleet     fleetCommand     `cmd:"" asks:"plane" help:"Show the sidecars of the control plane, and their topics."`
	Usage     usageCommand     `cmd:"" asks:"app store" help:"Show what each topic keeps, and how much that is a day."`
	Contexts  contextCommand   `cmd:"" name:"context" help:"Save the addresses of servers under names, and select one."`

	Demo       demoCommand       `cmd:"" asks:"store" help:"Show Sluice at work: a shop on sidecars that it starts."`
	Docs       docsCommand       `cmd:"" help:"Print a page of the documentation, or an entry of it."`
	Completion completionCommand `cmd:"" help:"Print a script by which bash, zsh or fish completes what is typed."`
	Complete   completeCommand   `cmd:"" hidden:"" asks:"app"`
}

func spec() program.Spec {
	return program.Spec{
		Name: "sluice",
		Description: "The command-line client of Sluice. It talks to a sidecar, and about\npolicies and the fleet to the control plane.\n\n" +
			"Exit status: 0 done, 1 failed, 2 misuse or not confirmed (no terminal and\nno --yes), 3 not found, 4 done or shown in part.",
		Examples: `sluice pub orders.created '{"order":17}' --key customer-3
sluice sub orders.created --group billing
sluice events orders.created --follow
sluice replay orders.created --from 1h
sluice export orders.created orders.ndjson
sluice latest customers --prefix eu-
sluice groups orders.created
sluice groups seek orders.created billing --from earliest --dry-run
sluice topics delete orders.created --dry-run
sluice trace orders.created order-17
sluice policy set orders.created publish.rate=500
sluice schema check order.json --topic orders.created
sluice overview
sluice top
sluice fleet topics --watch
sluice context add prod --url https://sluice.example:7070`,
		Settings:   new(commandLine),
		Status:     statusOf,
		ConfigFile: configFile,
	}
}

func main() { program.Main(spec()) }
