package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
)

// consume adds up payments until the group has caught up. If die is not nil, the consumer dies on
// the way, at the worst moment that its ledger has: it calls die with a function that breaks its
// connection.
func consume(ctx context.Context, l ledger, die func(disconnect func())) error {
	client, err := dial(ctx)
	if err != nil {
		return err
	}
	disconnected := make(chan struct{})
	disconnect := sync.OnceFunc(func() { close(disconnected) })

	handled := 0
	handle := l.handler(func(ctx context.Context, m *sluice.Message) error {
		if handled++; die == nil || handled != crashAt {
			return nil
		}
		fmt.Printf("%s is in the sum, not yet acked, and the consumer dies.\n", m.Event.ID)
		die(disconnect)
		<-ctx.Done()
		return ctx.Err()
	})
	if _, err := client.Subscribe(ctx, topic, group, handle, option.FromEarliest()); err != nil {
		return err
	}
	for {
		info, err := client.HTTP().GroupInfo(ctx, topic, group)
		if err != nil {
			return err
		}
		if info.Lag == 0 {
			return client.Drain(ctx)
		}
		select {
		case <-disconnected:
			return client.Close()
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
