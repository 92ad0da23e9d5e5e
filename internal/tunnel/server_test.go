package tunnel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

func TestASidecarIsForgottenOnceItHasHadNoStreamForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(nil)
		known := func() (keys, stores int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.keys), len(s.stores)
		}
		for range 3 { // streams that end soon, with pauses shorter than the grace
			_, leave, err := s.enter("node", "life", "store")
			require.NoError(t, err)
			leave()
			time.Sleep(grace * 9 / 10)
		}
		if keys, _ := known(); keys != 1 {
			t.Error("the sidecar is forgotten in the middle")
		}
		time.Sleep(grace)
		if keys, stores := known(); keys+stores != 0 {
			t.Errorf("%d and %d are left", keys, stores)
		}
	})
}
