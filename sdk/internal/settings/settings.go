// Package settings has the settings that options change.
package settings

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Subscribe are the settings of a subscription.
type Subscribe struct {
	Wire         wire.SubscribeOptions
	Concurrency  int
	Manual       bool
	MaxExtension time.Duration
	RetryFor     time.Duration
	MaxBytes     int
	EndOnGap     bool
	// Started is called when a subscription without a group has started, right behind these
	// positions.
	Started   func(positions map[int]uint64)
	Batch     int // 0: events are handled one by one
	BatchWait time.Duration
	Assigned  func(ctx context.Context, partitions []int)
	Revoked   func(ctx context.Context, partitions []int)
}

// Publish are the settings of a publisher.
type Publish struct {
	Count, Bytes int
	KeyedBatches bool
	StopKey      bool
	Asked        func(refusal *wire.Error, wait time.Duration)
}
