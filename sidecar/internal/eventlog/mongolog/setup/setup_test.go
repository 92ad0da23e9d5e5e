package setup

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/test/require"
)

// A collection of signals that is not capped cannot be followed, and is replaced.
func TestSignalsThatAreNotCapped(t *testing.T) {
	x := newIndexing(t)
	require.NoError(t, x.store.DB.CreateCollection(t.Context(), core.SignalsName(3)))
	for range 2 {
		require.NoError(t, x.createSignals(t.Context()))
	}
	if lines := x.lines.String(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, "is not capped") {
		t.Errorf("it logs %s", lines)
	}
	specs, err := x.store.DB.ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: core.SignalsName(3)}})
	if err != nil || len(specs) != 1 || !specs[0].Options.Lookup("capped").Boolean() {
		t.Errorf("the collection is now %+v, %v", specs, err)
	}
}
