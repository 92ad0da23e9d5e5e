package outbox

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs more tests at once than there are processors: parallel tests wait most of their
// time.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8")
	goleak.VerifyTestMain(m)
}
