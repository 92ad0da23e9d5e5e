package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/snapshot"
	"github.com/sluice-bus/sluice/sdk/table"
)

// killed names the program that is killed when a round is in the log.
var killed = map[int]string{10: "projector", 18: "viewer", 25: "emitter", 33: "projector", 40: "emitter", 47: "viewer", 55: "projector"}

// run starts the three, kills them on the way, and compares what is left with the model.
func run(ctx context.Context, client *sluice.Client) error {
	dir, err := os.MkdirTemp("", "heartbeat")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	running := map[string]*exec.Cmd{}
	start := func(role string) error {
		running[role] = exec.CommandContext(ctx, os.Args[0], "-role", role, "-snapshots", dir)
		running[role].Stdout, running[role].Stderr = os.Stdout, os.Stderr
		return running[role].Start()
	}
	defer func() {
		for _, cmd := range running {
			_ = cmd.Process.Kill() // where it runs
			_ = cmd.Wait()
		}
	}()
	reached, err := followRounds(ctx, client)
	if err != nil {
		return err
	}
	for _, role := range []string{"viewer", "projector", "emitter"} {
		if err := start(role); err != nil {
			return err
		}
	}
	beats := 0 // in the last snapshot that the projector has started with
	for round := 0; round < rounds; {
		select {
		case round = <-reached:
		case <-ctx.Done():
			return fmt.Errorf("round %d: %w", round, ctx.Err())
		}
		if role := killed[round]; role != "" {
			if role == "projector" {
				if beats, err = awaitSnapshot(ctx, dir, beats); err != nil {
					return err
				}
			}
			fmt.Printf("Round %d: the %s is killed.\n", round, role)
			if err := running[role].Process.Kill(); err != nil {
				return err
			}
			_ = running[role].Wait() // it says that it was killed
			if err := start(role); err != nil {
				return err
			}
		}
	}
	if err := running["emitter"].Wait(); err != nil {
		return fmt.Errorf("the emitter: %w", err)
	}
	delete(running, "emitter")
	if err := coldStart(ctx, client); err != nil {
		return err
	}
	if _, err := awaitSnapshot(ctx, dir, rounds*len(processes)-1); err != nil {
		return err
	}
	projector := running["projector"]
	delete(running, "projector")
	if err := projector.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := projector.Wait(); err != nil {
		return fmt.Errorf("the projector: %w", err)
	}
	return checkSnapshot(ctx, dir)
}

// followRounds reports each round once a heartbeat of it is in the log. The channel has room for
// all rounds.
func followRounds(ctx context.Context, client *sluice.Client) (<-chan int, error) {
	reached, last := make(chan int, rounds), 0
	_, err := client.Subscribe(ctx, heartbeats, "", func(_ context.Context, m *sluice.Message) error {
		var h heartbeat
		if err := json.Unmarshal(m.Event.Payload, &h); err != nil {
			return err
		}
		if h.Round > last {
			last = h.Round
			reached <- h.Round
		}
		return nil
	}, option.FromEarliest()) // ends with the client
	return reached, err
}

// coldStart opens a table of the states, like a program that has seen no event before, and waits
// until they are as expected.
func coldStart(ctx context.Context, client *sluice.Client) error {
	changed := make(chan struct{}, 1)
	t, err := table.Open(ctx, client, states, table.Options[state]{OnChange: func(table.Change[state]) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		return err
	}
	defer t.Close()
	want := expected()
	for {
		got, positions := t.Snapshot()
		if maps.Equal(got, want) {
			fmt.Printf("\nA cold start, at %v of %s:\n\n%-10s %-11s %-12s %s\n", positions, states, "PROCESS", "STATE", "SINCE ROUND", "CHANGES")
			for _, process := range slices.Sorted(maps.Keys(got)) {
				s := got[process]
				fmt.Printf("%-10s %-11s %-12d %d\n", process, s.State, s.Since, s.Changes)
			}
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the table has %v, expected %v", got, want)
		}
	}
}

// awaitSnapshot waits for a snapshot with more heartbeats, and returns how many it has.
func awaitSnapshot(ctx context.Context, dir string, than int) (int, error) {
	for ctx.Err() == nil {
		p, err := lastSnapshot(ctx, dir)
		if err != nil && !errors.Is(err, snapshot.ErrNone) || p.Beats > than {
			return p.Beats, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0, fmt.Errorf("the projector saves no snapshot: %w", ctx.Err())
}

func lastSnapshot(ctx context.Context, dir string) (p projection, err error) {
	last, err := store(dir).Load(ctx)
	if err == nil {
		err = json.Unmarshal(last.State, &p)
	}
	return p, err
}

// checkSnapshot compares the projector's last snapshot with the model.
func checkSnapshot(ctx context.Context, dir string) error {
	p, err := lastSnapshot(ctx, dir)
	if err != nil {
		return err
	}
	if beats := rounds * len(processes); p.Beats != beats || !maps.Equal(p.States, expected()) {
		return fmt.Errorf("the projector's snapshot has %d heartbeats and %v, expected %d and %v", p.Beats, p.States, beats, expected())
	}
	fmt.Printf("\nThe projector's snapshot has each of the %d heartbeats once, and the same %d states.\n", p.Beats, len(p.States))
	return nil
}
