package reads

import (
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func TestScanFilters(t *testing.T) {
	scope := bson.D{{Key: "topic", Value: "t"}}
	if got := scanFilters(scope, eventlog.ScanQuery{MinTS: 5}); len(got) != 1 {
		t.Errorf("%v", got)
	}
	got := scanFilters(scope, eventlog.ScanQuery{MinTS: 5, After: &eventlog.Point{TS: 5, ID: "a"}})
	if len(got) != 2 || got[0].(bson.D)[0].Key != "topic" || got[1].(bson.D)[0].Key != "topic" {
		t.Errorf("%v", got)
	}
	for _, q := range []eventlog.ScanQuery{
		{MinTS: 6, MaxTS: 5},
		{MaxTS: 5, After: &eventlog.Point{TS: 6}},
		{MinTS: 5, After: &eventlog.Point{TS: 4}, Descending: true},
		{MinTS: 5, After: &eventlog.Point{TS: math.MinInt64}, Descending: true},
	} {
		if got := scanFilters(scope, q); len(got) != 0 {
			t.Errorf("%+v: %v", q, got)
		}
	}
	if got := scanFilters(scope, eventlog.ScanQuery{MaxTS: 5, After: &eventlog.Point{TS: math.MaxInt64}}); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
