package oncestore_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets more tests run at once than there are processors: parallel tests here wait most of
// their time.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8")
	goleak.VerifyTestMain(m)
}
