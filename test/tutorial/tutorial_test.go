//go:build unix

package tutorial

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

func TestMain(m *testing.M) {
	testkit.Parallel()
	goleak.VerifyTestMain(m)
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// TestTutorial does what the tutorial says. Its MongoDB is the tests'.
func TestTutorial(t *testing.T) {
	t.Parallel()
	server := mongotest.Shared(t)
	page := read(t, "../../docs/tutorial.md")
	begin(t, page, "STORE="+server.URI(server.NewDatabase(t))).run("docs/tutorial.md", page)
}
