package main

import (
	"context"
	"encoding/json"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
)

// projector follows heartbeats, and publishes a process's state when it changes.
type projector struct {
	client  *sluice.Client
	sub     *sluice.Subscription
	known   map[string]state // by process; the handler's alone once it is subscribed
	handled chan struct{}    // one element for each heartbeat
}

// startProjector follows the heartbeats from where the group stands. Several projectors at a time would each load what is
// known in [option.OnAssigned], since partitions then move between them.
func startProjector(ctx context.Context, client *sluice.Client, known map[string]state) (*projector, error) {
	p := &projector{client: client, known: known, handled: make(chan struct{}, rounds*len(processes))}
	var err error
	p.sub, err = client.Subscribe(ctx, heartbeats, group, p.handle, option.FromEarliest())
	return p, err
}

// handle may see a heartbeat again, where its ack was lost. The state's id is made from the heartbeat's, so that publishing
// it again stores nothing.
func (p *projector) handle(ctx context.Context, m *sluice.Message) error {
	var h heartbeat
	if err := json.Unmarshal(m.Event.Payload, &h); err != nil {
		return err // and in the end it is in heartbeat.received.dlq
	}
	process := m.Event.Key
	if now := stateOf(h); now != p.known[process].State {
		next := state{State: now, Since: h.Round}
		payload, err := json.Marshal(next)
		if err != nil {
			return err
		}
		_, err = p.client.Publish(ctx, &sluice.Event{
			Topic: states, Key: process, Payload: payload,
			ID: "state-" + m.Event.ID, CausedBy: []string{m.Event.ID},
		})
		if err != nil {
			return err
		}
		p.known[process] = next
	}
	p.handled <- struct{}{}
	return nil
}

// finish waits for n heartbeats, and ends the projector in order.
func (p *projector) finish(ctx context.Context, n int) error {
	for range n {
		select {
		case <-p.handled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.sub.Drain()
	<-p.sub.Closed()
	return nil
}
