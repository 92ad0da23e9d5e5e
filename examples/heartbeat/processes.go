package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/snapshot"
	"github.com/sluice-bus/sluice/sdk/table"
)

// emit publishes the heartbeats of all rounds. It goes on behind the latest one of each process
// that is in the log.
func emit(ctx context.Context, client *sluice.Client) error {
	last := map[string]int{}
	_, err := client.HTTP().Latest(ctx, admin.LatestQuery{Topic: heartbeats}, func(e sluice.Event) error {
		var h heartbeat
		err := json.Unmarshal(e.Payload, &h)
		last[e.Key] = h.Round
		return err
	})
	if err != nil && !errors.Is(err, sluice.ErrNotFound) { // the first one makes the topic
		return err
	}
	fmt.Printf("The emitter starts, and %d processes have sent heartbeats before.\n", len(last))
	for round := 1; round <= rounds; round++ {
		var events []sluice.Event
		for process, cpu := range processes {
			if round <= last[process] {
				continue
			}
			payload, err := json.Marshal(heartbeat{Round: round, CPU: cpu(round)})
			if err != nil {
				return err
			}
			events = append(events, sluice.Event{
				Topic: heartbeats, ID: fmt.Sprintf("%s-%d", process, round), Key: process, Payload: payload,
			})
		}
		if len(events) == 0 {
			continue
		}
		if _, err := client.PublishBatch(ctx, events); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond) // for people who watch; nothing depends on it
	}
	return nil
}

// projection is the projector's state, and the content of its snapshots.
type projection struct {
	Beats  int              `json:"beats"`
	States map[string]state `json:"states"`
}

// store is where the projector has its snapshots.
func store(dir string) snapshot.Store { return &snapshot.File{Dir: dir, Name: "projector"} }

// project follows the heartbeats behind its last snapshot, and publishes a process's state when it
// changes. A projector that was killed publishes the states since that snapshot again. A state's id
// is made from the heartbeat's, so the log stores none of them twice.
func project(ctx context.Context, client *sluice.Client, dir string) error {
	switch last, err := store(dir).Load(ctx); {
	case errors.Is(err, snapshot.ErrNone):
		fmt.Println("The projector starts without a snapshot.")
	case err != nil:
		return err
	default:
		fmt.Printf("The projector starts with its snapshot at %v: %s\n", last.Positions, last.State)
	}
	c, err := snapshot.Follow(ctx, client, heartbeats, store(dir), snapshot.Options[projection]{
		Every: 50 * time.Millisecond,
		Apply: func(ctx context.Context, p *projection, e *sluice.Event) error {
			var h heartbeat
			if err := json.Unmarshal(e.Payload, &h); err != nil {
				return err
			}
			p.Beats++
			next, changed := p.States[e.Key].next(h)
			if !changed {
				return nil
			}
			payload, err := json.Marshal(next)
			if err != nil {
				return err
			}
			if p.States == nil {
				p.States = map[string]state{}
			}
			p.States[e.Key] = next
			_, err = client.Publish(ctx, &sluice.Event{
				Topic: states, ID: "state-" + e.ID, Key: e.Key, Payload: payload, CausedBy: []string{e.ID},
			})
			return err
		},
	})
	if err != nil {
		return err
	}
	told, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	select {
	case <-told.Done():
		return c.Close(ctx)
	case <-c.Done():
		return c.Err()
	}
}

// view shows the present states, and then each change.
func view(ctx context.Context, client *sluice.Client) error {
	fmt.Println("The viewer starts.")
	t, err := table.Open(ctx, client, states, table.Options[state]{OnChange: func(c table.Change[state]) {
		fmt.Printf("  %-10s %-11s since round %2d, caused by %s\n", c.Key, c.Value.State, c.Value.Since, c.Event.CausedBy[0])
	}})
	if err != nil {
		return err
	}
	<-t.Done()
	return t.Err()
}
