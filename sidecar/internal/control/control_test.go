package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/controlplane/policypb"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
)

func TestPoliciesComeAndChange(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "orders.*": 2, "orders.new": 3, "orders.old": 0, "payments": 4})
	p.Start()
	s := start(t, p, nil)
	s.sync(t)
	ctx := context.Background()
	s.Await(ctx, "orders.new")
	s.Await(ctx, "orders.old")
	if s.version("orders.new") != 3 || s.version("orders.old") != 2 || s.version("x") != 1 {
		t.Errorf("got %+v", s.Policies().Load().List())
	}
	if !s.Known("orders.new") || !s.Known("orders.old") || s.Known("payments") {
		t.Error("known should be what was waited for, and nothing else")
	}
	if got := s.Policies().Load().List(); len(got) != 3 || got[0].Source != "control-plane" || got[0].Version != policy.VersionNumber(1) {
		t.Errorf("in force: %v", got)
	}
	p.put(map[string]int64{"orders.old": 5, "orders.new": 0, "*": 6})
	xdstest.Soon(t, "the change", func() bool {
		return s.version("orders.old") == 5 && s.version("orders.new") == 2 && s.version("x") == 6
	})
	p.Put(globType, map[string]proto.Message{"orders.*": nil})
	p.Put(topicType, map[string]proto.Message{"orders.old": nil})
	xdstest.Soon(t, "the removals", func() bool { return s.version("orders.new") == 6 && s.version("orders.old") == 6 })
	if slices.Contains(p.Sent(), "payments") {
		t.Error("a topic that nobody uses was sent")
	}
}

func TestRefusedUpdateChangesNothing(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "a*": 1, "b*": 1, "t": 1})
	p.Start()
	s := start(t, p, nil)
	s.sync(t)
	s.Await(context.Background(), "t")
	bad := globPolicy("b*", 2)
	bad.Settings.Partitions = proto.Int64(-1)
	bad.Settings.Publish.Scope = proto.String("galaxy")
	p.Put(globType, map[string]proto.Message{"a*": globPolicy("a*", 2), "b*": bad})
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

func TestSyncedOnceAllGlobsAreThere(t *testing.T) {
	p := newPlane(t)
	bad := globPolicy("b*", 1)
	bad.Settings.Partitions = proto.Int64(-1)
	p.Put(globType, map[string]proto.Message{"*": globPolicy("*", 1), "b*": bad})
	p.Start()
	s := start(t, p, nil)
	xdstest.Soon(t, "a refusal", func() bool { return len(p.Requests(xdstest.Refused)) == 1 })
	soon, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if s.Synced(soon) == nil || s.Cached() {
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
	if err != nil {
		t.Fatal(err)
	}
	fallback, err := policy.NewSnapshot(list, "file")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, p, func(cfg *Config) { cfg.Fallback = fallback })
	began := time.Now()
	s.Await(context.Background(), "a")
	if took := time.Since(began); took >= AwaitPolicy {
		t.Errorf("without a connection it waited for %v", took)
	}
	if s.version("a") != 77 || s.Cached() || s.Known("a") {
		t.Errorf("version %d, cached %v, known %v", s.version("a"), s.Cached(), s.Known("a"))
	}
	if st := s.Status(); st.Connected || st.Address != p.Address {
		t.Errorf("status %+v", st)
	}
	p.put(map[string]int64{"a": 0})
	p.Start()
	s.sync(t)
	xdstest.Soon(t, "what was asked for before", func() bool { return s.Known("a") && s.version("a") == 2 })
	if st := s.Status(); !st.Connected || st.Error != "" || !s.Cached() {
		t.Errorf("status %+v", st)
	}
}

func TestAwaitGivesUp(t *testing.T) {
	p := newPlane(t) // says nothing of topics that it does not have
	p.Start()
	s := start(t, p, nil)
	s.sync(t)
	began := time.Now()
	s.Await(context.Background(), "silent")
	if took := time.Since(began); took < AwaitPolicy || took > AwaitPolicy+3*time.Second {
		t.Errorf("waited for %v", took)
	}
	began = time.Now()
	for range 100 {
		s.Await(context.Background(), "silent")
	}
	if took := time.Since(began); took >= AwaitPolicy {
		t.Errorf("waited for %v again", took)
	}
	if s.Known("silent") {
		t.Error("it is known")
	}
	p.put(map[string]int64{"silent": 3})
	xdstest.Soon(t, "a late answer", func() bool { return s.Known("silent") && s.version("silent") == 3 })
}

func TestAwaitEndsWithItsContextAndWithTheConnection(t *testing.T) {
	p := newPlane(t)
	p.Start()
	s := start(t, p, nil)
	s.sync(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Await(ctx, "a")
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Await(context.Background(), "b")
	}()
	xdstest.Soon(t, "the topic asked for", func() bool { return s.topics.find("b") != nil })
	p.Stop()
	<-done
	for _, name := range []string{"a", "b"} {
		if got := s.topics.find(name).standing.Load(); got != asked {
			t.Errorf("%s has standing %d, as if it had been waited for in full", name, got)
		}
	}
}

func TestNamesThatNoPolicyHas(t *testing.T) {
	p := newPlane(t)
	p.Start()
	s := start(t, p, nil)
	s.sync(t)
	for _, name := range []string{"", "*", "a*", strings.Repeat("x", 300), "a b", "a\xff"} {
		s.Await(context.Background(), name)
		s.Use(name)
		if s.topics.find(name) != nil {
			t.Errorf("%q was asked for", name)
		}
	}
}

func TestTopicsAreBounded(t *testing.T) {
	s := open(t, newPlane(t), nil)
	for i := range MaxTopics + 10 {
		s.Use(fmt.Sprintf("topic.%d", i))
	}
	if n := s.topics.count.Load(); n != MaxTopics {
		t.Errorf("%d topics, want %d", n, MaxTopics)
	}
	s.Await(context.Background(), "another")
	if s.topics.find("another") != nil {
		t.Error("a topic beyond the bound was asked for")
	}
	if n := strings.Count(s.logged.String(), "too many topics"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	for range 17 {
		s.forgetIdle()
	}
	if n := s.topics.count.Load(); n != 0 {
		t.Errorf("%d topics after they were idle", n)
	}
	s.Use("another")
	if s.topics.find("another") == nil {
		t.Error("there is room again, and a topic was not asked for")
	}
}

func TestUnusedTopicsAreForgotten(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "used": 2, "unused": 3})
	p.Start()
	s := start(t, p, nil)
	s.sync(t)
	ctx := context.Background()
	s.Await(ctx, "used")
	s.Await(ctx, "unused")
	for range 16 {
		s.forgetIdle()
		s.Await(ctx, "used")
	}
	if s.version("unused") != 3 {
		t.Fatal("forgotten too early")
	}
	s.forgetIdle()
	if s.Known("unused") || s.version("unused") != 1 || !s.Known("used") || s.version("used") != 2 {
		t.Errorf("unused: known %v, version %d; used: %v, %d", s.Known("unused"), s.version("unused"), s.Known("used"), s.version("used"))
	}
	xdstest.Soon(t, "the control plane told", func() bool {
		return len(p.Requests(func(r *discoveryv3.DeltaDiscoveryRequest) bool {
			return slices.Contains(r.GetResourceNamesUnsubscribe(), "unused")
		})) == 1
	})
	s.Await(ctx, "unused")
	if s.version("unused") != 3 {
		t.Error("used again, and its policy is not in force")
	}
}

// A topic that is used while it is being forgotten stays, or is asked for again.
func TestForgettingWhileInUse(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "t": 2})
	p.Start()
	s := start(t, p, nil)
	s.sync(t)
	s.Await(context.Background(), "t")
	for range 60 {
		for range 16 { // one more, and it is forgotten
			s.forgetIdle()
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.forgetIdle()
		}()
		s.Await(context.Background(), "t")
		if s.version("t") != 2 {
			t.Fatal("in use, and its policy is not in force")
		}
		<-done
		if s.version("t") != 2 {
			t.Fatal("just used, and forgotten")
		}
		s.Await(context.Background(), "t")
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
	if got, want := s.Peers(), (Peer{NodeID: "node-i2", Instance: "i2", StoreID: "store", Address: "10.0.0.1:1001"}); got[0] != want || got[1].Instance != "i3" {
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
	s := start(t, p, func(cfg *Config) { cfg.Replay = func() string { return "10.0.0.7:8083" } })
	s.sync(t)
	node := p.Requests(func(*discoveryv3.DeltaDiscoveryRequest) bool { return true })[0].GetNode()
	for key, want := range map[string]string{"instance": "i1", "store_id": "s1", "version": "test", "replay": "10.0.0.7:8083"} {
		if got := node.GetMetadata().GetFields()[key].GetStringValue(); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if node.GetId() != "n1" {
		t.Errorf("id %q", node.GetId())
	}
}

// The control plane hears of write concerns that are not met, and that they are met again, on the stream that is there.
func TestTellsOfUnmetConcerns(t *testing.T) {
	p := newPlane(t)
	p.Start()
	var unmet atomic.Pointer[map[string]string]
	unmet.Store(&map[string]string{})
	s := start(t, p, func(cfg *Config) { cfg.UnmetConcerns = func() map[string]string { return *unmet.Load() } })
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

func TestPace(t *testing.T) {
	var p pace
	now := time.Now()
	p.spent(now.Add(-time.Hour))
	if rest := p.free.Sub(now); rest < maxPace/2 || rest > maxPace+time.Second {
		t.Errorf("after a costly one: %v", rest)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.free = now.Add(time.Hour)
	if p.wait(ctx) {
		t.Error("waited, though nobody does any more")
	}
	p = pace{}
	if !p.wait(context.Background()) {
		t.Error("the first one was held back")
	}
}

func BenchmarkAwaitKnown(b *testing.B) {
	s := open(b, newPlane(b), nil)
	for i := range 1000 {
		name := fmt.Sprintf("topic.%d", i)
		t := newTopic(name, known)
		s.topics.add(t)
	}
	ctx := context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.Await(ctx, "topic.77")
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{20, 10_000, MaxTopics} {
		s := open(b, newPlane(b), nil)
		e := policy.Defaults()
		for i := range n {
			s.held[policypb.TopicPolicyType][fmt.Sprintf("topic.%d", i)] = &entry{effective: &e}
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				s.acting.change("topic.1", &entry{effective: &e})
				s.acting.snapshot(s.held)
			}
		})
	}
}
