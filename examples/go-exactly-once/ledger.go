package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/exactlyonce"
)

// ledger adds up payments, each id once.
type ledger interface {
	// handler returns a handler that adds payments to the sum. It calls crash with each that was
	// added, at the moment at which a crash would hurt most.
	handler(crash sluice.Handler) sluice.Handler
	sum(ctx context.Context) (int, error)
}

// amount is what a payment adds.
func amount(m *sluice.Message) (int, error) {
	var payment struct {
		Amount int `json:"amount"`
	}
	err := json.Unmarshal(m.Event.Payload, &payment)
	return payment.Amount, err
}

// crashing calls crash after an effect that has run in this call. It prints a line about an effect
// that had run before. One event is handled at a time.
func crashing(once func(effect sluice.Handler) sluice.Handler, effect, crash sluice.Handler) sluice.Handler {
	ran := false
	handle := once(func(ctx context.Context, m *sluice.Message) error {
		ran = true
		return effect(ctx, m)
	})
	return func(ctx context.Context, m *sluice.Message) error {
		ran = false
		err := handle(ctx, m)
		switch {
		case err != nil:
			return err
		case !ran:
			fmt.Println(m.Event.ID, "is in the sum already, and is not added again.")
			return nil // which acks
		}
		return crash(ctx, m)
	}
}

var options = exactlyonce.Options{Scope: exactlyonce.Scope(topic, group)}

// memoryLedger keeps the sum and the marks in memory: enough for a consumer that loses its
// connection, and nothing is left of either when the process ends.
type memoryLedger struct {
	once  *exactlyonce.Handler
	total atomic.Int64
}

func newMemoryLedger() (*memoryLedger, error) {
	once, err := exactlyonce.New(exactlyonce.NewMemory(0), options)
	return &memoryLedger{once: once}, err
}

func (l *memoryLedger) handler(crash sluice.Handler) sluice.Handler {
	once := func(effect sluice.Handler) sluice.Handler { return exactlyonce.Once(l.once, effect) }
	return crashing(once, func(_ context.Context, m *sluice.Message) error {
		n, err := amount(m)
		l.total.Add(int64(n))
		return err
	}, crash)
}

func (l *memoryLedger) sum(context.Context) (int, error) { return int(l.total.Load()), nil }
