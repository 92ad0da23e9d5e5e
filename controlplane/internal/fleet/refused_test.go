package fleet_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

func refusals(topic string, code wire.Code, n int64) []health.Refused {
	return []health.Refused{{Refusal: health.Refusal{Topic: topic, Code: code}, Events: n}}
}

// A topic has the refusals of the last hour by code, of the sidecars of all control planes.
func TestRefusalsByReason(t *testing.T) {
	r, c := newRegistry("cp1")
	other, _ := newRegistry("cp2")
	c.pass(time.Second)
	r.Usage("a", "orders", 1, 0, c.at)
	r.Refuse(append(refusals("orders", wire.RateLimited, 3), refusals("orders", wire.SchemaViolation, 1)...))
	r.Refuse(refusals(health.Other, wire.NotFound, 7)) // of topics that may not exist
	c.pass(30 * time.Minute)
	r.Usage("a", "orders", 1, 0, c.at)
	r.Refuse(refusals("orders", wire.RateLimited, 10))
	other.Refuse(refusals("orders", wire.RateLimited, 100))
	require.NoError(t, r.Merge("cp1", [][]byte{other.Export()}))
	shown := func(want map[string]int64) {
		t.Helper()
		if all := r.Topics(false); len(all) != 1 || !maps.Equal(all[0].Refusals, want) {
			t.Errorf("got %+v, want %v", all, want)
		}
	}
	shown(map[string]int64{"rate_limited": 113, "schema_violation": 1})
	c.pass(31 * time.Minute)
	r.Usage("a", "orders", 1, 0, c.at)
	shown(map[string]int64{"rate_limited": 110})
}

func TestRefusalsHaveABound(t *testing.T) {
	r, c := newRegistry("cp1")
	for i := range fleet.MaxRefusals + 5 {
		topic := fmt.Sprint(i)
		r.Usage("a", topic, 1, 0, c.at)
		r.Refuse(refusals(topic, wire.RateLimited, 1))
	}
	kept := 0
	for _, topic := range r.Topics(false) {
		kept += len(topic.Refusals)
	}
	if kept != fleet.MaxRefusals {
		t.Errorf("the refusals of %d topics are kept, at most %d should be", kept, fleet.MaxRefusals)
	}
}
