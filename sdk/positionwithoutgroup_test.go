package sluice

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// TestALongAbsenceIsAGap: a client that was away for so long may have missed deletions of keys, of
// which nothing is left.
func TestALongAbsenceIsAGap(t *testing.T) {
	for away, ends := range map[time.Duration]bool{longestAway - time.Minute: false, longestAway + time.Minute: true} {
		s := newSubscription(t.Context(), new(Client), "orders", "", newSubscribeConfig([]option.Subscribe{option.EndOnGap()}))
		s.lone.lost = time.Now().Add(-away)
		conn := &Conn{cause: ErrClosed, subs: map[subKey]*ConnSubscription{}}
		if err := s.join(t.Context(), conn); errors.Is(err, &wire.Error{Code: wire.OutOfRange}) != ends || errors.Is(err, ErrClosed) == ends {
			t.Errorf("away for %v: %v", away, err)
		}
	}
}
