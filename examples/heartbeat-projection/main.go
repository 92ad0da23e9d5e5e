// Heartbeat-projection turns a stream of heartbeats into the state of each process: heartbeat.received, by key, becomes
// process.state. Whoever needs the states, the projector itself after a restart included, replays process.state.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
)

const (
	heartbeats = "heartbeat.received"
	states     = "process.state"
	group      = "projector"
	rounds     = 30 // heartbeats of each process, of which the first half go to the first projector
)

// heartbeat is the payload of heartbeat.received. The event's key is the process.
type heartbeat struct {
	Round int `json:"round"`
	CPU   int `json:"cpu"` // percent
}

// state is the payload of process.state. The event's key is the process.
type state struct {
	State string `json:"state"`
	Since int    `json:"since_round"`
}

// stateOf is the rule of the projection.
func stateOf(h heartbeat) string {
	switch {
	case h.CPU == 0:
		return "stopped"
	case h.CPU >= 90:
		return "overloaded"
	default:
		return "running"
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := sluice.Dial(ctx, cmp.Or(os.Getenv("SLUICE_URL"), "http://127.0.0.1:7070"),
		sluice.WithReplayURL(cmp.Or(os.Getenv("SLUICE_REPLAY_URL"), "http://127.0.0.1:8083")))
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, client); err != nil {
		log.Fatal(err)
	}
	if err := client.Drain(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, client *sluice.Client) error {
	table, err := startTable(ctx, client)
	if err != nil {
		return err
	}
	for _, half := range [][2]int{{1, rounds / 2}, {rounds/2 + 1, rounds}} {
		if err := project(ctx, client, table, half[0], half[1]); err != nil {
			return err
		}
	}
	want := expected()
	if err := table.await(ctx, want); err != nil {
		return err
	}
	late, err := replayStates(ctx, client)
	if err != nil {
		return err
	}
	fmt.Printf("\nA late joiner replays %s:\n\n%s\n", states, format(late))
	if !maps.Equal(late, want) {
		return fmt.Errorf("the replayed states are %v, expected %v", late, want)
	}
	fmt.Printf("The late joiner has the same %d states.\n", len(late))
	return nil
}

// project runs a projector while the processes send their heartbeats of some rounds. It begins with what is in the log and
// nothing else, as after a restart.
func project(ctx context.Context, client *sluice.Client, table *table, from, to int) error {
	known, err := replayStates(ctx, client)
	if err != nil {
		return err
	}
	table.say(fmt.Sprintf("A projector starts, and knows %d states from the log.", len(known)))
	p, err := startProjector(ctx, client, known)
	if err != nil {
		return err
	}
	for round := from; round <= to; round++ {
		if err := beat(ctx, client, round); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond) // for whoever looks on; nothing depends on it
	}
	return p.finish(ctx, (to-from+1)*len(processes))
}

// replayStates is the latest state of each process, as the log has it.
func replayStates(ctx context.Context, client *sluice.Client) (map[string]state, error) {
	known, seqs := map[string]state{}, map[string]uint64{}
	for event, err := range client.Replay(ctx, sluice.ReplayQuery{Topic: states}) {
		if err != nil {
			return nil, err
		}
		var s state
		if err := json.Unmarshal(event.Payload, &s); err != nil {
			return nil, err
		}
		if event.Seq > seqs[event.Key] { // of those that compaction has not removed yet, the latest counts
			known[event.Key], seqs[event.Key] = s, event.Seq
		}
	}
	return known, nil
}
