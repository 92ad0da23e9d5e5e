package catalog

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Author is the author of a change.
type Author struct {
	Name   string // in the history
	Reason string // likewise; "": none is given
	// Admin allows changes that remove events: other authors may not shorten what topics keep.
	Admin bool
}

// mayShorten returns a *wire.Error with forbidden if topics keep less after a change than before
// and the author is no admin. It compares the values in force of every policy, since others inherit
// from the changed ones. It is for changes that remove no policy: only admins may remove one.
func (a Author) mayShorten(before, after *State) error {
	if a.Admin {
		return nil
	}
	for i := range after.Entries {
		name := after.Entries[i].Policy.Name
		if less := shortened(before.Snapshot.Retention(name), after.Snapshot.Retention(name)); less != nil {
			return wire.Errorf(wire.Forbidden,
				"only a sender with the role admin may shorten retention, and topics of policy %q would keep less: %s", name, strings.Join(less, ", "))
		}
	}
	return nil
}

// shortened names the fields by which a topic keeps fewer events.
func shortened(was, is policy.Retention) (fields []string) {
	add := func(less bool, field string, was, is any) {
		if less {
			fields = append(fields, fmt.Sprintf("%s from %v to %v", field, was, is))
		}
	}
	shorter := func(is, was time.Duration) bool { return is > 0 && (was == 0 || is < was) }
	add(shorter(is.TTL, was.TTL), "retention.ttl", was.TTL, is.TTL)
	add(shorter(is.DeadLetters, was.DeadLetters), "retention.dead_letters", was.DeadLetters, is.DeadLetters)
	add(is.Compact && !was.Compact, "retention.compact", was.Compact, is.Compact)
	add(is.MaxBytes > 0 && (was.MaxBytes == 0 || is.MaxBytes < was.MaxBytes), "retention.max_bytes", was.MaxBytes, is.MaxBytes)
	return fields
}
