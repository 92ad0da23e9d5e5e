package group

import (
	"errors"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// TestSeekThatLosesItsPartitions: others take the partitions of a group at each try of a seek. It goes on until it has moved the
// group; if they never stop it is refused, and not as if the store were away.
func TestSeekThatLosesItsPartitions(t *testing.T) {
	for _, tc := range []struct {
		name   string
		losses int
		want   error
	}{
		{"for a while", 20, nil},
		{"for ever", 1 << 20, &wire.Error{Code: wire.Overloaded}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runFleet(t, 1, func(t *testing.T, f *fleet) {
				owner, other := f.pair()
				owner.join()
				f.wantOwners(owner.name)
				f.log.locked(func() {
					f.log.onTake = func() {
						if tc.losses--; tc.losses >= 0 {
							e := f.log.epochs[partitionZero]
							e.Number++
							f.log.epochs[partitionZero] = e
						}
					}
				})
				err := other.m.Seek(t.Context(), topic, "g", wire.SubscribeOptions{From: wire.FromEarliest})
				f.log.locked(func() { f.log.onTake = nil })
				if tc.want == nil {
					require.NoError(t, err)
				} else if !errors.Is(err, tc.want) {
					t.Errorf("error %v; want %v", err, tc.want)
				}
				if e := new(wire.Error); errors.As(err, &e) && e.RetryAfter <= 0 {
					t.Errorf("%v says no time to try again", err)
				}
			})
		})
	}
}
