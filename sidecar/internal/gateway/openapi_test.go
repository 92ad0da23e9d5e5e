package gateway_test

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/test/openapitest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// Requests of many shapes, allowed and not, get answers that are described, and none is a defect's.
func TestAnswersAreDescribed(t *testing.T) { testkit.Rounds(t, randomRequests) }

func randomRequests(t *testing.T, seed uint64) {
	s := gatewaytest.Start(t, gatewaytest.Setup{Policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0}}]`})
	h := s.Gateway.Handler()
	r := openapitest.Random{
		Description: openapitest.Of(h),
		Words: []string{
			"t", "t", "t", "g", "a", "", ".", "..", "_x", "t.dlq", "é", "a b", "0", "1", "-1", "now", "earliest", "1e9", "%", "\"", "null",
			"9007199254740993", strings.Repeat("x", 300),
		},
		Fixed:   map[string]any{"wait_ms": 0},
		Without: []string{"GET /ws", "GET /v1/topics/{topic}/stream"}, // these have no end
	}
	done := 0
	for _, statuses := range r.Try(t, h, 10_000, seed) {
		if statuses[200] || statuses[201] || statuses[202] || statuses[204] {
			done++
		}
	}
	if done < len(r.Operations)*3/5 {
		t.Errorf("only %d of %d operations were ever done", done, len(r.Operations))
	}
	if objects := r.CheckMembers(t, h, map[string]any{"payload": 1, "entryId": "x"}); objects < 10 {
		t.Errorf("asked about the members of only %d objects", objects)
	}
}
