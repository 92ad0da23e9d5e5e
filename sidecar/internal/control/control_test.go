package control

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/xds"
	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
	"github.com/sluice-bus/sluice/test/require"
)

func TestPoliciesComeAndChange(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "orders.*": 2, "orders.new": 3, "payments": 4})
	p.Start()
	s := start(t, p, nil)
	s.sync(t)
	if s.version("orders.new") != 3 || s.version("orders.old") != 2 || s.version("x") != 1 || s.version("payments") != 4 {
		t.Errorf("got %+v", s.Policies().Load().List())
	}
	if got := s.Policies().Load().List(); len(got) != 4 || got[0].Source != "control-plane" || got[0].Version != policy.VersionNumber(1) {
		t.Errorf("in force: %v", got)
	}
	p.put(map[string]int64{"orders.old": 5, "orders.new": 0, "*": 6})
	xdstest.Soon(t, "the change", func() bool {
		return s.version("orders.old") == 5 && s.version("orders.new") == 2 && s.version("x") == 6
	})
	p.put(map[string]int64{"orders.*": 0, "orders.old": 0})
	xdstest.Soon(t, "the removals", func() bool { return s.version("orders.new") == 6 && s.version("orders.old") == 6 })
}

// A policy that goes from one pack to another one is in force all the while, and one of a pack that
// stays as it was keeps its pointer, which is what others know it by.
func TestPoliciesMoveBetweenPacks(t *testing.T) {
	p := newPlane(t)
	p.Put(packType, map[string]proto.Message{"policies/1": packOf(policyOf("a", 1), policyOf("b", 2)),
		"policies/2": packOf(policyOf("c", 3), policyOf("d", 4))})
	p.Start()
	s := start(t, p, nil)
	s.sync(t)
	a := s.Policies().Load().Topic("a")
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			snapshot, next := s.Policies().Watch()
			if got := snapshot.Topic("c").Partitions; got != 3 {
				t.Errorf("c has version %d", got)
			}
			select {
			case <-next:
			case <-done:
				return
			}
		}
	}()
	p.Put(packType, map[string]proto.Message{"policies/1": packOf(policyOf("a", 1), policyOf("b", 2), policyOf("c", 3)),
		"policies/2": packOf(policyOf("d", 5))})
	xdstest.Soon(t, "the end of one", func() bool { return s.version("d") == 5 })
	p.Put(packType, map[string]proto.Message{"policies/1": packOf(policyOf("a", 1), policyOf("b", 6), policyOf("c", 3),
		policyOf("d", 5)), "policies/2": nil})
	xdstest.Soon(t, "one pack alone", func() bool { return s.version("b") == 6 })
	close(done)
	<-ended
	if s.version("c") != 3 || s.version("d") != 5 || len(s.Policies().Load().List()) != 4 {
		t.Errorf("in force: %+v", s.Policies().Load().List())
	}
	if s.Policies().Load().Topic("a") != a {
		t.Error("what stayed as it was has another pointer")
	}
}

func TestRefusedUpdateChangesNothing(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "a*": 1, "b*": 1, "t": 1})
	p.Start()
	s := start(t, p, nil)
	s.sync(t)
	bad := policyOf("b*", 2)
	bad.settings.Partitions = proto.Int64(-1)
	bad.settings.Publish.Scope = proto.String("galaxy")
	p.Put(packType, map[string]proto.Message{packName("a*"): packOf(policyOf("a*", 2)), packName("b*"): packOf(bad)})
	xdstest.Soon(t, "a refusal", func() bool { return len(p.Requests(xdstest.Refused)) == 1 })
	reason := p.Requests(xdstest.Refused)[0].GetErrorDetail().GetMessage()
	for _, part := range []string{`"b*"`, "partitions", "publish.scope", "galaxy"} {
		if !strings.Contains(reason, part) {
			t.Errorf("the control plane is told %q, without %s", reason, part)
		}
	}
	if strings.Contains(reason, "a*") {
		t.Errorf("the control plane is told of a* too: %q", reason)
	}
	if s.version("a1") != 1 || s.version("b1") != 1 {
		t.Error("part of what was refused is in force")
	}
	p.put(map[string]int64{"b*": 3})
	xdstest.Soon(t, "a good one, and what else was refused", func() bool { return s.version("a1") == 2 && s.version("b1") == 3 })
	s.stop()
	if n := strings.Count(s.logged.String(), "is refused"); n != 1 {
		t.Errorf("%d refusals logged, want 1", n)
	}
}

func TestSyncedOnceAllPoliciesAreThere(t *testing.T) {
	p := newPlane(t)
	bad := policyOf("b*", 1)
	bad.settings.Partitions = proto.Int64(-1)
	p.Put(packType, map[string]proto.Message{packName("*"): packOf(policyOf("*", 1)), packName("b*"): packOf(bad)})
	p.Start()
	s := start(t, p, nil)
	xdstest.Soon(t, "a refusal", func() bool { return len(p.Requests(xdstest.Refused)) == 1 })
	soon, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if s.AwaitSynced(soon) == nil || s.Cached() {
		t.Error("synced, and nothing was taken")
	}
	p.put(map[string]int64{"b*": 2})
	s.sync(t)
	if s.version("x") != 1 || s.version("b1") != 2 {
		t.Errorf("in force: %+v", s.Policies().Load().List())
	}
}

func TestFallbackUntilThereIsMore(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 2})
	list, err := policy.ParseYAML([]byte("[{name: '*', partitions: 77}]"))
	require.NoError(t, err)
	fallback, err := policy.NewSnapshot(list, "file")
	require.NoError(t, err)
	s := start(t, p, func(cfg *settings) { cfg.Fallback = fallback })
	if s.version("a") != 77 || s.Cached() {
		t.Errorf("version %d, cached %v", s.version("a"), s.Cached())
	}
	if st := s.Status(); st.Connected || st.Address != p.Address {
		t.Errorf("status %+v", st)
	}
	p.Start()
	s.sync(t)
	if s.version("a") != 2 {
		t.Errorf("version %d once there is more", s.version("a"))
	}
	if st := s.Status(); !st.Connected || st.Error != "" || !s.Cached() {
		t.Errorf("status %+v", st)
	}
}

func TestPeers(t *testing.T) {
	p := newPlane(t)
	p.peers("replay-peers/0", "i1", "i2")
	p.peers("replay-peers/1", "i3")
	s := start(t, p, nil)
	if s.KnownSidecars() != 1 || s.PeersKnown() {
		t.Errorf("%d sidecars before anything is known", s.KnownSidecars())
	}
	p.Start()
	s.sync(t)
	if !s.PeersKnown() {
		t.Error("the peers are not known once the control plane has answered")
	}
	xdstest.Soon(t, "the peers", func() bool { return s.KnownSidecars() == 3 })
	if got, want := s.Peers(), (Peer{NodeID: "node-i2", Instance: "i2", StoreID: "store",
		Address: "10.0.0.1:1001"}); got[0] != want || got[1].Instance != "i3" {
		t.Errorf("peers %+v", got)
	}
	p.Put(peersType, map[string]proto.Message{"replay-peers/1": nil})
	p.peers("replay-peers/0", "i2", "i2", "i4")
	xdstest.Soon(t, "a change", func() bool { return s.KnownSidecars() == 3 && s.Peers()[1].Instance == "i4" })
	left := assignment("replay-peers/0", "i2", "i4")
	left.Endpoints[0].LbEndpoints[1].HealthStatus = corev3.HealthStatus_UNHEALTHY
	p.Put(peersType, map[string]proto.Message{"replay-peers/0": left})
	xdstest.Soon(t, "one that has left", func() bool { return s.KnownSidecars() == 2 && s.Peers()[1].Gone })
	broken := assignment("replay-peers/0", "i5")
	broken.Endpoints[0].LbEndpoints[0].HostIdentifier = nil
	p.Put(peersType, map[string]proto.Message{"replay-peers/0": broken})
	xdstest.Soon(t, "a refusal", func() bool { return len(p.Requests(xdstest.Refused)) == 1 })
	if s.KnownSidecars() != 2 {
		t.Error("part of what was refused is in force")
	}
}

func TestTellsWhoItIs(t *testing.T) {
	p := newPlane(t)
	p.Start()
	s := start(t, p, func(cfg *settings) { cfg.Replay = func() string { return "10.0.0.7:8083" } })
	s.sync(t)
	node := p.Requests(func(*discoveryv3.DeltaDiscoveryRequest) bool { return true })[0].GetNode()
	for key, want := range map[string]string{policypb.InstanceSecret: "i1", "store_id": "s1", "version": "test", "replay": "10.0.0.7:8083"} {
		if got := node.GetMetadata().GetFields()[key].GetStringValue(); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if node.GetId() != "n1" {
		t.Errorf("id %q", node.GetId())
	}
}

// The control plane hears of write concerns that are not met, and that they are met again, on the
// stream that is there.
func TestTellsOfUnmetConcerns(t *testing.T) {
	p := newPlane(t)
	p.Start()
	var unmet atomic.Pointer[map[string]string]
	unmet.Store(&map[string]string{})
	s := start(t, p, func(cfg *settings) { cfg.UnmetConcerns = func() map[string]string { return *unmet.Load() } })
	s.sync(t)
	told := func() map[string]any {
		named := p.Requests(func(r *discoveryv3.DeltaDiscoveryRequest) bool { return r.GetNode() != nil })
		return named[len(named)-1].GetNode().GetMetadata().AsMap()[policypb.UnmetConcerns].(map[string]any)
	}
	many := map[string]string{}
	for i := range policypb.MaxUnmetConcerns + 1 {
		many[fmt.Sprintf("t-%03d", i)] = "w:3"
	}
	for _, is := range []map[string]string{{"orders": "w:3"}, {}, many} {
		unmet.Store(&is)
		xdstest.Soon(t, fmt.Sprint("to hear of ", is), func() bool {
			got := told()
			for topic, concern := range got {
				if is[topic] != concern {
					return false
				}
			}
			return len(got) == min(len(is), policypb.MaxUnmetConcerns)
		})
	}
	s.stop()
	if strings.Count(s.logged.String(), "connected") != 1 {
		t.Errorf("logged %s", s.logged)
	}
}

func BenchmarkChange(b *testing.B) {
	for _, n := range []int{20, 10_000} {
		s := open(b, newPlane(b), nil)
		var all []*policy.Resolved
		e := policy.Defaults()
		for i := range n {
			all = append(all, &policy.Resolved{Name: fmt.Sprintf("topic.%d", i), Effective: &e})
		}
		snapshot := s.Policies().Load().Replace(nil, all)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				snapshot.Replace(all[:1], all[:1])
			}
		})
	}
}

// BenchmarkStart puts 10,000 policies in force at a start, which have 150 different settings.
func BenchmarkStart(b *testing.B) {
	update := xds.Update{Version: "0/0", Type: packType, Whole: true}
	for at := 0; at < 10_000; at += 64 {
		var pack []settled
		for i := range 64 {
			pack = append(pack, policyOf(fmt.Sprintf("team-%02d.service-%05d.events", at/100, at+i), int64(1+at/64%150)))
		}
		m := packOf(pack...)
		m.Settings = m.Settings[:1]
		for _, p := range m.Policies {
			p.Settings = 0
		}
		body, err := proto.Marshal(m)
		require.NoError(b, err)
		update.Resources = append(update.Resources, xds.Resource{Name: packName(fmt.Sprint(at)), Version: "1", Body: body})
	}
	p := newPlane(b)
	b.ReportAllocs()
	for b.Loop() {
		s := open(b, p, nil)
		require.NoError(b, s.apply(b.Context(), update))
		s.stop()
	}
}
