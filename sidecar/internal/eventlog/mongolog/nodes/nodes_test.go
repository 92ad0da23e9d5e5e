package nodes

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/coretest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/setup"
	"github.com/sluice-bus/sluice/test/mongotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNodes(t *testing.T) {
	server := mongotest.Shared(t)
	url := server.URI(server.NewDatabase(t))
	open := func() *Nodes {
		s := coretest.Open(t, core.Config{URL: url})
		s.Prepare = setup.New(s).Prepare
		return New(s)
	}
	eventlogtest.RunNodes(t, open(), open())
}
