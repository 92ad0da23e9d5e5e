package setup

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// A collection of signals that is not capped cannot be followed, and is replaced.
func TestSignalsThatAreNotCapped(t *testing.T) {
	x := newIndexing(t)
	if err := x.store.DB.CreateCollection(t.Context(), core.SignalsName(3)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := x.createSignals(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if lines := x.lines.String(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, "is not capped") {
		t.Errorf("it logs %s", lines)
	}
	specs, err := x.store.DB.ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: core.SignalsName(3)}})
	if err != nil || len(specs) != 1 || !specs[0].Options.Lookup("capped").Boolean() {
		t.Errorf("the collection is now %+v, %v", specs, err)
	}
}
