package exactlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
)

// An event that is delivered twice has its effect once.
func Example() {
	ctx := context.Background()
	store := exactlyonce.NewMemory(0) // or oncestore.New
	h, err := exactlyonce.New(store, exactlyonce.Options{Scope: exactlyonce.Scope("orders.created", "billing")})
	if err != nil {
		log.Fatal(err)
	}
	for _, delivered := range []string{"order-1", "order-2", "order-1"} {
		ran, err := h.Do(ctx, delivered, func(ctx context.Context) error {
			fmt.Println("charge", delivered)
			return nil
		})
		if err != nil {
			log.Fatal(err) // give the event back
		}
		fmt.Println("acknowledge", delivered, ran)
	}
	// Output:
	// charge order-1
	// acknowledge order-1 true
	// charge order-2
	// acknowledge order-2 true
	// acknowledge order-1 false
}

// After Do the event is acknowledged, or given back with a delay.
func ExampleRetryAfter() {
	ctx := context.Background()
	h, err := exactlyonce.New(exactlyonce.NewMemory(0), exactlyonce.Options{Scope: "billing/orders", Lease: time.Minute,
		Wait: exactlyonce.NoWait})
	if err != nil {
		log.Fatal(err)
	}
	handle := func(id string, effect func(context.Context) error) {
		_, err := h.Do(ctx, id, effect)
		if after, ok := exactlyonce.RetryAfter(err); ok {
			fmt.Printf("%s: in progress elsewhere, nack with a delay of %v\n", id, after.Round(time.Minute))
			return
		}
		switch {
		case err == nil:
			fmt.Printf("%s: ack\n", id)
		default:
			fmt.Printf("%s: nack: %v\n", id, err)
		}
	}
	handle("order-1", func(context.Context) error {
		handle("order-1", nil) // another consumer gets it meanwhile
		return errors.New("no connection to the bank")
	})
	handle("order-1", func(context.Context) error { return nil })
	// Output:
	// order-1: in progress elsewhere, nack with a delay of 1m0s
	// order-1: nack: no connection to the bank
	// order-1: ack
}

// An effect that is conditional on its fence: a process that was paused cannot overwrite the effect
// of a later claim.
func ExampleHandler_DoClaimed() {
	ctx := context.Background()
	h, err := exactlyonce.New(exactlyonce.NewMemory(0), exactlyonce.Options{Scope: "billing/orders"})
	if err != nil {
		log.Fatal(err)
	}
	type invoice struct {
		total int
		fence int64
	}
	invoices := map[string]invoice{} // a database
	write := func(c *exactlyonce.Claim, total int) error {
		if invoices[c.ID].fence > c.Fence {
			return exactlyonce.ErrFenced
		}
		invoices[c.ID] = invoice{total, c.Fence}
		return nil
	}

	var paused *exactlyonce.Claim
	for _, failure := range []error{errors.New("the printer is on fire"), nil} {
		_, err := h.DoClaimed(ctx, "order-1", func(ctx context.Context, c *exactlyonce.Claim) error {
			if paused == nil {
				paused = c
			}
			return errors.Join(write(c, 17), failure)
		})
		fmt.Println(err)
	}
	fmt.Println(write(paused, 18))
	fmt.Println(invoices["order-1"].total)
	// Output:
	// the printer is on fire
	// <nil>
	// fenced by a later claim
	// 17
}

// Where it does not matter that two consumers may run an effect at once.
func ExampleNewDedupeStore() {
	ctx := context.Background()
	d := exactlyonce.NewDedupeStore(exactlyonce.NewMemory(0))
	for _, delivered := range []string{"order-1", "order-1"} {
		seen, err := d.Seen(ctx, "orders.created", "billing", delivered)
		if err != nil {
			log.Fatal(err)
		}
		if seen {
			fmt.Println("skip", delivered)
			continue
		}
		fmt.Println("charge", delivered)
		if err := d.Mark(ctx, "orders.created", "billing", delivered, 0); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// charge order-1
	// skip order-1
}
