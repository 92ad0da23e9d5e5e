package main

import (
	"context"
	"encoding/json"

	sluice "github.com/sluice-bus/sluice/sdk"
)

// processes are the processes that send heartbeats, and how busy they are in a round.
var processes = map[string]func(round int) (cpu int){
	"api-1":    func(round int) int { return 40 + round%7 },
	"api-2":    func(round int) int { return 70 + round },                       // more and more
	"batch-1":  func(round int) int { return []int{30, 95}[round/8%2] },         // comes and goes
	"mailer-1": func(round int) int { return []int{20, 0}[round/(rounds*2/3)] }, // stops
}

// beat publishes one heartbeat of each process.
func beat(ctx context.Context, client *sluice.Client, round int) error {
	var events []sluice.Event
	for process, cpu := range processes {
		payload, err := json.Marshal(heartbeat{Round: round, CPU: cpu(round)})
		if err != nil {
			return err
		}
		events = append(events, sluice.Event{Topic: heartbeats, Key: process, Payload: payload})
	}
	_, err := client.PublishBatch(ctx, events)
	return err
}

// expected is what the states are after all rounds.
func expected() map[string]state {
	want := map[string]state{}
	for process, cpu := range processes {
		for round := 1; round <= rounds; round++ {
			if now := stateOf(heartbeat{Round: round, CPU: cpu(round)}); now != want[process].State {
				want[process] = state{State: now, Since: round}
			}
		}
	}
	return want
}
