package replay

import (
	"log/slog"
	"testing"

	"github.com/sluice-bus/sluice/test/openapitest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// Requests of many shapes, allowed and not, get answers that are described, and none is a defect's.
func TestAnswersAreDescribed(t *testing.T) { testkit.Rounds(t, randomRequests) }

func randomRequests(t *testing.T, seed uint64) {
	log := embedded(t, many(30, 20))
	h := New(Config{Store: log, Parts: Parts{Log: log}, Logger: slog.New(slog.DiscardHandler), Now: now})
	r := openapitest.Random{
		Description: openapitest.Of(h),
		Words: []string{
			"orders", "orders", "id-00000003", "a", "", "..", "_x", "é", "a b", "0", "1", "-1", "now", "1e9", "%", "null", "9007199254740993",
		},
	}
	seen := r.Try(t, h, 10_000, seed)
	for route, statuses := range map[string][]int{
		"GET /replay": {200, 400}, "GET /export": {200, 400}, "GET /peers": {200}, "GET /peer": {200}, "POST /peer/ids": {200, 400},
	} {
		for _, status := range statuses {
			if !seen[route][status] {
				t.Errorf("no request led %s to %d: %v", route, status, seen[route])
			}
		}
	}
	if objects := r.CheckMembers(t, h, map[string]any{"topic": "orders"}); objects == 0 {
		t.Error("asked about the members of no object")
	}
}
