package xds_test

import (
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// versionsOf are what a client says that it has, when it comes with a view.
func versionsOf(r *discovery.DeltaDiscoveryResponse) map[string]string {
	versions := map[string]string{}
	for _, each := range r.GetResources() {
		versions[each.GetName()] = each.GetVersion()
	}
	return versions
}

// full is the response that has all peers, once there are as many groups.
func full(t *testing.T, f *fixture, groups int) *discovery.DeltaDiscoveryResponse {
	t.Helper()
	for {
		c := f.connect(t, "looks", "i")
		c.node.Metadata.Fields["replay"].Kind = nil
		c.subscribe(peers, "*")
		r := c.next()
		c.close()
		if len(r.GetResources()) == groups {
			return r
		}
	}
}

func (c *client) comeWith(has map[string]string) {
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: peers, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: has})
}

// After a restart nobody is told that the others are gone before they had the time to return; those
// who return are not told of again.
func TestAYoungControlPlaneLeavesSidecarsTheirPeers(t *testing.T) {
	const settle = time.Second
	old := serve(t, policies{"a": 1})
	for _, id := range []string{"n1", "n2", "n3"} {
		old.connect(t, id, "i").policies()
	}
	has := versionsOf(full(t, old, 3))
	old.stop()

	began := time.Now()
	young := serveSettling(t, policies{"a": 1}, settle)
	one, two := young.connect(t, "n1", "i"), young.connect(t, "n2", "i")
	one.comeWith(has)
	two.comeWith(has)
	one.policies()
	one.expect(policies{"a": 1}) // and nothing of peers before it
	fresh := young.connect(t, "n4", "i")
	fresh.subscribe(peers, "*")
	view := fleetView{}
	for len(view.all()) < 3 { // one that knows nothing is told at once
		view.take(t, fresh)
	}

	two.close()               // while it is held
	told := map[string]bool{} // of these; false: that they are gone
	for first := true; len(told) < 3; first = false {
		r := one.next()
		one.ack(r)
		if since := time.Since(began); first && since < settle {
			t.Errorf("told after %v", since)
		}
		for _, each := range r.GetResources() {
			told[each.GetName()] = true
		}
		for _, name := range r.GetRemovedResources() {
			told[name] = false
		}
	}
	outcomes := map[[2]bool]int{} // was it known, and is it still
	for name, there := range told {
		_, had := has[name]
		outcomes[[2]bool{had, there}]++
	}
	if outcomes[[2]bool{false, true}] != 1 || outcomes[[2]bool{true, true}] != 1 || outcomes[[2]bool{true, false}] != 1 {
		t.Errorf("told of %v; want n4, that n2 has left, and that n3 is not known", told)
	}
}
