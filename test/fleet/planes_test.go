package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// TestTwoControlPlanesOnOneStore has sidecars at each of two control planes that share a store in
// MongoDB.
func TestTwoControlPlanesOnOneStore(t *testing.T) {
	t.Parallel()
	db := mongotest.Shared(t)
	store := db.URI(db.NewDatabase(t))
	var planes []*plane
	var sidecars []*member
	for i, name := range []string{"left", "right"} {
		planes = append(planes, startPlane(t, "--store", store, "--name", name))
		if i == 0 {
			planes[0].put(t, "*", unlimited)
		}
		sidecars = append(sidecars, startSidecar(t, "at-"+name, "--control-plane", planes[i].XDS()))
	}
	t.Run("changes", func(t *testing.T) { changesReachTheOther(t, planes, sidecars) })
	t.Run("races", func(t *testing.T) { oneOfManyWins(t, planes) })
	t.Run("sidecars", func(t *testing.T) { allKnowAllSidecars(t, planes, sidecars) })
	t.Run("fleet limit", func(t *testing.T) { fleetLimitOverBoth(t, planes, sidecars) })
}

// changesReachTheOther puts policies through each control plane, and checks the sidecars of the
// other.
func changesReachTheOther(t *testing.T, planes []*plane, sidecars []*member) {
	for _, m := range sidecars {
		require.NoError(t, m.publish(t.Context(), "a"))
	}
	var took []time.Duration
	for i := range 8 {
		begin := time.Now()
		planes[i%2].put(t, "a", fmt.Sprintf(`{"publish":{"rate":100,"burst":%d}}`, i+1))
		other := sidecars[(i+1)%2]
		eventually(t, "the change at the other", func() bool { return other.burst(t, "a") == i+1 })
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	t.Logf("from a PUT through one to the sidecar at the other: p50 %v, at most %v",
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
}

// oneOfManyWins puts one policy through both control planes at once, for the same version.
func oneOfManyWins(t *testing.T, planes []*plane) {
	policy := planes[0].put(t, "race", `{"publish":{"burst":1}}`)
	for round := range 8 {
		type outcome struct {
			policy admin.Policy
			err    error
		}
		outcomes := make([]outcome, 2*len(planes))
		var racing sync.WaitGroup
		for i := range outcomes {
			racing.Go(func() {
				document := fmt.Sprintf(`{"publish":{"burst":%d}}`, 10*(round+1)+i)
				o := &outcomes[i]
				o.policy, o.err = planes[i%len(planes)].api.PutPolicy(t.Context(), "race", json.RawMessage(document),
					admin.Condition{Version: policy.Version})
			})
		}
		racing.Wait()
		won := 0
		for _, o := range outcomes {
			if got := code(t, o.err); got == "" {
				won++
				policy = o.policy
			} else if got != wire.PreconditionFailed {
				t.Errorf("round %d: %v", round, o.err)
			}
		}
		if won != 1 || policy.Version != int64(round+2) {
			t.Fatalf("round %d: %d of %d changes of one version were made; the policy is at version %d", round, won, len(outcomes), policy.Version)
		}
	}
	for i, p := range planes {
		eventually(t, fmt.Sprint("the history at ", i), func() bool {
			versions, err := p.api.PolicyHistory(t.Context(), "race")
			return err == nil && int64(len(versions)) == policy.Version
		})
	}
}

// allKnowAllSidecars waits until the control planes know both sidecars, and each sidecar knows the
// other: a rate's fallback depends on how many a sidecar knows.
func allKnowAllSidecars(t *testing.T, planes []*plane, sidecars []*member) {
	for i, p := range planes {
		eventually(t, fmt.Sprint("all sidecars at ", i), func() bool {
			sidecars, err := p.api.Sidecars(t.Context())
			require.NoError(t, err)
			at := map[string]bool{}
			for _, s := range sidecars {
				if s.Connected && s.Versions["a"] == 8 {
					at[s.NodeID] = true
				}
			}
			return len(at) == 2 && at["at-left"] && at["at-right"]
		})
	}
	for _, m := range sidecars {
		eventually(t, "the other sidecar at "+m.name, func() bool {
			var status struct{ Peers []struct{ Gone bool } }
			text, err := m.api.StatusJSON(t.Context())
			if err == nil {
				err = json.Unmarshal(text, &status)
			}
			require.NoError(t, err)
			return len(status.Peers) == 1 && !status.Peers[0].Gone
		})
	}
}

// fleetLimitOverBoth publishes more than the fleet's limit, through sidecars of both control
// planes.
func fleetLimitOverBoth(t *testing.T, planes []*plane, sidecars []*member) {
	planes[0].put(t, "shared", fleetPolicy)
	for i, p := range planes {
		eventually(t, fmt.Sprint("the policy at ", i), func() bool {
			_, err := p.api.Policy(t.Context(), "shared")
			return err == nil
		})
	}
	c := startCrowd(t, "shared", sidecars)
	c.load(t, 3*time.Second, 150, 150)
	from, to := c.load(t, 2*time.Second, 150, 150)
	moved := c.turn(200, 0)
	eventually(t, "the whole rate at one of them", func() bool {
		end := time.Since(c.began)
		c.mu.Lock()
		defer c.mu.Unlock()
		accepted, _ := c.within(max(moved, end-time.Second), end)
		return accepted >= fleetRate*9/10
	})
	end := time.Since(c.began)
	c.end()
	for _, err := range c.faults {
		t.Error(err)
	}
	// Until the control planes have divided the rate the sidecars go by their fallback, with two of
	// them known.
	const known = 2
	c.bounded(t, "over two control planes", 0, end, fleetBurst+slack+known*(fleetBurst/known+1))
	c.bounded(t, "over two control planes, settled", from, end, fleetBurst+slack)
	c.parts(t, "spread over two control planes", from, to)
	t.Logf("the whole rate was at one of them %v after all load moved there, as was a second of it", (end - moved).Round(time.Millisecond))
	for from := moved; from+500*time.Millisecond <= end; from += 500 * time.Millisecond {
		c.parts(t, fmt.Sprintf("%v after the move", from-moved), from, from+500*time.Millisecond)
	}
	t.Logf("accepted in all by sidecar: %v", c.by)
}
