package policy

import "time"

// Defaults are the values of a topic without policies.
func Defaults() Effective {
	return Effective{
		Publish:    Publish{Rate: 1000, Burst: 1000, Scope: ScopeSidecar, OnLimit: LimitReject},
		Connection: Rate{Rate: 200, Burst: 200},
		Delivery: Delivery{
			MaxInflight: 100,
			AckTimeout:  30 * time.Second,
			MaxAttempts: 25,
			Backoff:     Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Minute},
		},
		Partitions: 8,
		Dedupe:     Dedupe{Window: 7 * 24 * time.Hour, By: DedupeByID},
		Retention:  Retention{Expired: ExpiredDrop, DeadLetters: 720 * time.Hour},
		Durability: Durability{WriteConcern: WriteConcernMajority, OnStoreUnavailable: StoreSpool, SpoolMaxBytes: 1 << 30},
		Schema:     Schema{Compatibility: CompatibilityBackward},
		Tracing:    Tracing{SampleRatio: 1},
		AutoCreate: true,
	}
}
