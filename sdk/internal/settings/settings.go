// Package settings has the settings that options change.
package settings

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Checked notes the first option whose value makes no sense.
type Checked struct{ Bad error }

// Need notes that an option's value is not allowed, where that is so, and says what is.
func (c *Checked) Need(allowed bool, format string, args ...any) {
	if !allowed && c.Bad == nil {
		c.Bad = fmt.Errorf("sluice: "+format, args...)
	}
}

// Subscribe are the settings of a subscription.
type Subscribe struct {
	Checked
	Wire         wire.SubscribeOptions
	Concurrency  int
	Manual       bool
	MaxExtension time.Duration
	RetryFor     *time.Duration // nil: 5 minutes, or none where the attempts are counted
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
	Checked
	Count, Bytes int
	KeyedBatches bool
	StopKey      bool
	Asked        func(refusal *wire.Error, wait time.Duration)
}
