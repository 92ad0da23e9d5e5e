package main

import (
	"context"
	"sync/atomic"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
)

// ledger adds up payments, each id once.
type ledger interface {
	// add sees to it that the payment is in the sum. What it says is worth telling, or "". It calls crash at the moment at
	// which a crash would hurt most.
	add(ctx context.Context, id string, amount int, crash func() error) (says string, err error)
	sum(ctx context.Context) (int, error)
}

const isThere = "is in the sum already, and is not added again"

var options = exactlyonce.Options{Scope: exactlyonce.Scope(topic, group)}

// memoryLedger keeps the sum and the marks in memory: enough for a consumer that loses its connection, and nothing is left
// of either when the process ends.
type memoryLedger struct {
	once  *exactlyonce.Handler
	total atomic.Int64
}

func newMemoryLedger() (*memoryLedger, error) {
	once, err := exactlyonce.New(exactlyonce.NewMemory(0), options)
	return &memoryLedger{once: once}, err
}

func (l *memoryLedger) add(ctx context.Context, id string, amount int, crash func() error) (string, error) {
	ran, err := l.once.Do(ctx, id, func(context.Context) error {
		l.total.Add(int64(amount))
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case !ran:
		return isThere, nil
	default:
		return "", crash()
	}
}

func (l *memoryLedger) sum(context.Context) (int, error) { return int(l.total.Load()), nil }
