// Package federation_test tests replays of a fleet in use: real sidecars on stores of their own and
// on shared ones, as processes that are used, cut off from their store and killed while clients ask
// for the whole history.
package federation_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
