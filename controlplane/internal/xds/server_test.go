package xds_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/xds"
	"github.com/sluice-bus/sluice/internal/policypb"
)

// acked waits until the registry shows these versions for the only sidecar.
func (f *fixture) acked(t *testing.T, want policies) {
	t.Helper()
	var got map[string]int64
	defer func() {
		if t.Failed() {
			t.Logf("acked: %v, want %v", got, want)
		}
	}()
	eventually(t, "acked versions", func() bool {
		list := f.registry.Sidecars()
		if len(list) == 1 {
			got = list[0].Versions
		}
		return len(list) == 1 && maps.Equal(got, want)
	})
}

func TestPoliciesArrive(t *testing.T) {
	f := serve(t, policies{"a": 1, "b": 2, "unused": 3, "*": 4, "x.*": 5})
	c := f.connect(t, "n", "i")
	c.subscribe(topics, "a", "b", "none")
	c.expect(topics, policies{"a": 1, "b": 2, "none": -1})
	c.subscribe(globs, "*")
	c.expect(globs, policies{"*": 4, "x.*": 5})
	f.acked(t, policies{"a": 1, "b": 2, "*": 4, "x.*": 5})

	f.set(policies{"a": 11, "b": 2, "unused": 3, "*": 4, "x.*": 5})
	c.expect(topics, policies{"a": 11})
	f.set(policies{"a": 11, "b": 2, "unused": 3, "*": 4, "x.*": 5, "none": 12})
	c.expect(topics, policies{"none": 12})
	f.set(policies{"a": 11, "unused": 3, "*": 4, "none": 12, "y.*": 13})
	for range 2 { // the two types come in either order
		r := c.next()
		c.ack(r)
		if r.GetTypeUrl() == topics && (len(r.GetResources()) != 0 || !slices.Equal(r.GetRemovedResources(), []string{"b"})) ||
			r.GetTypeUrl() == globs && (len(r.GetResources()) != 1 || r.GetResources()[0].GetName() != "y.*" || len(r.GetRemovedResources()) != 1 || r.GetRemovedResources()[0] != "x.*") {
			t.Errorf("got %v", r)
		}
	}
	f.acked(t, policies{"a": 11, "none": 12, "*": 4, "y.*": 13})
}

// A sidecar says which write concerns are not met when it comes, and later as that changes; it is
// sent nothing for it.
func TestUnmetConcerns(t *testing.T) {
	f := serve(t, policies{"*": 4})
	c := f.connect(t, "n", "i")
	say := func(concerns map[string]any) {
		told, err := structpb.NewStruct(concerns)
		if err != nil {
			t.Fatal(err)
		}
		c.node = node("n", "i")
		c.node.Metadata.Fields[policypb.UnmetConcerns] = structpb.NewStructValue(told)
		c.subscribe(globs)
	}
	for _, want := range []map[string]any{{"orders": "w:3"}, {"orders": "w:2", "paid": "w:3"}, {}} {
		say(want)
		eventually(t, fmt.Sprint("shown: ", want), func() bool {
			list := f.registry.Sidecars()
			return len(list) == 1 && maps.EqualFunc(list[0].UnmetConcerns, want, func(a string, b any) bool { return a == b })
		})
	}
	c.subscribe(globs, "*")
	c.expect(globs, policies{"*": 4})
	say(map[string]any{strings.Repeat("x", 64<<10): "w:3"})
	if err := c.end(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("too much of them ended with %v", err)
	}
}

// A sidecar that asks for packs is sent all policies, hears of a change at once and of nothing
// else, and after a restart of what has changed.
func TestPacksArrive(t *testing.T) {
	set := policies{"*": 1, "a": 1, "x.*": 5}
	for i := range 500 {
		set[fmt.Sprintf("t-%03d", i)] = 7
	}
	f := serve(t, set)
	c := f.connect(t, "n", "i")
	c.subscribe(packs, "*")
	has := map[string]string{}
	take := func(r *discovery.DeltaDiscoveryResponse) (n int) {
		for _, each := range r.GetResources() {
			has[each.GetName()] = each.GetVersion()
		}
		for _, name := range r.GetRemovedResources() {
			delete(has, name)
		}
		c.ack(r)
		return len(r.GetResources()) + len(r.GetRemovedResources())
	}
	if n := take(c.next()); n < 3 {
		t.Errorf("%d packs", n)
	}
	f.acked(t, set)
	set["a"] = 2
	f.set(set)
	if n := take(c.next()); n != 1 {
		t.Errorf("a change is %d packs", n)
	}
	f.acked(t, set)
	delete(set, "t-123")
	f.set(set)
	if n := take(c.next()); n > 2 {
		t.Errorf("a policy less is %d packs", n)
	}
	f.acked(t, set)
	c.close()
	f.stop()
	set["t-200"] = 8
	f = serve(t, set)
	c = f.connect(t, "n", "i")
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: packs, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: has})
	r := c.next()
	if len(r.GetResources()) != 1 || len(f.registry.Sidecars()[0].Versions) < 300 {
		t.Errorf("%d packs of what it has, %d versions before them", len(r.GetResources()), len(f.registry.Sidecars()[0].Versions))
	}
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: packs, ResponseNonce: r.GetNonce(), ErrorDetail: &rpc.Status{Message: `"t-200": is bad`}})
	eventually(t, "rejected", func() bool {
		rejected := f.registry.Sidecars()[0].Rejected
		return rejected != nil && rejected.Policy == "t-200" && rejected.Version == 8
	})
}

func TestNothingIsSentToThoseNotInterested(t *testing.T) {
	f := serve(t, policies{"a": 1, "b": 1})
	one, two := f.connect(t, "n1", "i"), f.connect(t, "n2", "i")
	one.subscribe(topics, "a")
	two.subscribe(topics, "b")
	one.expect(topics, policies{"a": 1})
	two.expect(topics, policies{"b": 1})
	for version := int64(2); version < 5; version++ {
		f.set(policies{"a": version, "b": 1})
		one.expect(topics, policies{"a": version})
	}
	f.set(policies{"a": 4, "b": 9})
	two.expect(topics, policies{"b": 9}) // the first thing that it hears
	if len(one.got) != 0 {
		t.Errorf("got %v", <-one.got)
	}
}

func TestChangesInQuickSuccessionAreSentTogether(t *testing.T) {
	f := serve(t, policies{"a": 1})
	c := f.connect(t, "n", "i")
	c.subscribe(topics, "a")
	c.expect(topics, policies{"a": 1})
	const changes = 500
	for version := int64(2); version <= changes; version++ {
		f.set(policies{"a": version})
	}
	responses := 0
	for last := int64(0); last < changes; responses++ {
		r := c.next()
		last = version(t, r.GetResources()[0])
		c.ack(r)
	}
	if responses > changes/10 {
		t.Errorf("%d changes were sent in %d responses", changes, responses)
	}
}

func TestUnsubscribing(t *testing.T) {
	f := serve(t, policies{"a": 1, "b": 1, "g*": 1})
	c := f.connect(t, "n", "i")
	c.subscribe(topics, "a", "b", "none")
	c.expect(topics, policies{"a": 1, "b": 1, "none": -1})
	c.subscribe(globs, "*")
	c.expect(globs, policies{"g*": 1})
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: topics, ResourceNamesUnsubscribe: []string{"a", "none", "never"}})
	f.acked(t, policies{"b": 1, "g*": 1})
	f.set(policies{"a": 2, "b": 2, "none": 2, "g*": 1})
	c.expect(topics, policies{"b": 2})
	c.subscribe(topics, "a") // what it has dropped comes again
	c.expect(topics, policies{"a": 2})
	c.subscribe(topics, "a") // also if the server does not know that it was dropped
	c.expect(topics, policies{"a": 2})
	f.acked(t, policies{"a": 2, "b": 2, "g*": 1})
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: globs, ResourceNamesUnsubscribe: []string{"*"}})
	f.acked(t, policies{"a": 2, "b": 2})
}

// A name without a policy is answered, comes once there is a policy, and is seen by nobody else.
func TestNamesWithoutAPolicyAreAnswered(t *testing.T) {
	f := serve(t, policies{})
	watching, one := f.connect(t, "w", "i"), f.connect(t, "n1", "i")
	watching.subscribe(topics, "*")
	watching.expect(topics, policies{})
	one.subscribe(topics, "none")
	one.expect(topics, policies{"none": -1})
	one.subscribe(topics, "none", "another")
	one.expect(topics, policies{"none": -1, "another": -1})
	f.set(policies{"none": 3})
	one.expect(topics, policies{"none": 3})
	watching.expect(topics, policies{"none": 3})
	f.set(policies{})
	one.expect(topics, policies{"none": -1})
	watching.expect(topics, policies{"none": -1})
	eventually(t, "whom a policy of that name has to reach", func() bool {
		using := f.registry.Using("none")
		return len(using) == 1 && using[0].NodeID == "n1" && len(using[0].Versions) == 0
	})
}

func TestRejectionIsShownUntilAnAck(t *testing.T) {
	f := serve(t, policies{"a": 1, "b": 1, "*": 1})
	c := f.connect(t, "n", "i")
	c.subscribe(globs, "*")
	c.expect(globs, policies{"*": 1})
	c.subscribe(topics, "a", "b")
	c.expect(topics, policies{"a": 1, "b": 1})
	f.acked(t, policies{"a": 1, "b": 1, "*": 1})
	f.set(policies{"a": 2, "b": 3, "*": 1})
	c.nack(c.next(), `resource "b": publish.rate is too odd`)
	rejected := func() *fleet.Rejection { return f.registry.Sidecars()[0].Rejected }
	eventually(t, "rejected", func() bool { return rejected() != nil })
	if got := *rejected(); got != (fleet.Rejection{Policy: "b", Version: 3, Reason: `resource "b": publish.rate is too odd`}) {
		t.Errorf("got %+v", got)
	}
	f.acked(t, policies{"a": 1, "b": 1, "*": 1})

	f.set(policies{"a": 2, "b": 3, "*": 2}) // an ack of another type changes nothing
	c.expect(globs, policies{"*": 2})
	f.acked(t, policies{"a": 1, "b": 1, "*": 2})
	if rejected() == nil {
		t.Error("cleared by another type")
	}
	f.set(policies{"a": 2, "b": 4, "*": 2})
	c.expect(topics, policies{"b": 4})
	eventually(t, "cleared", func() bool { return rejected() == nil })
}

func TestALongReasonIsCut(t *testing.T) {
	f := serve(t, policies{"a": 1})
	c := f.connect(t, "n", "i")
	c.subscribe(topics, "a")
	c.nack(c.next(), strings.Repeat("ü", 10_000))
	eventually(t, "rejected", func() bool { return f.registry.Sidecars()[0].Rejected != nil })
	got := f.registry.Sidecars()[0].Rejected
	if len(got.Reason) > 3000 || strings.Trim(got.Reason, "ü") != "…" || got.Policy != "a" {
		t.Errorf("%d bytes for %s", len(got.Reason), got.Policy)
	}
}

func TestConnectingAgainResendsNothing(t *testing.T) {
	set := policies{"a": 1, "b": 1, "x.*": 1, "*": 1}
	f := serve(t, set)
	c := f.connect(t, "n", "i")
	c.subscribe(topics, "a", "b", "none")
	fromTopics := versions(c.expect(topics, policies{"a": 1, "b": 1, "none": -1}))
	c.subscribe(globs, "*")
	fromGlobs := versions(c.expect(globs, policies{"x.*": 1, "*": 1}))
	c.close()
	f.stop()

	// The control plane starts again, and in the meantime b has changed.
	f = serve(t, policies{"a": 1, "b": 2, "x.*": 1, "*": 1})
	c = f.connect(t, "n", "i")
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: topics,
		ResourceNamesSubscribe: []string{"a", "b", "none"}, InitialResourceVersions: fromTopics})
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: globs,
		ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: fromGlobs})
	r := c.next()
	if len(r.GetResources()) != 1 || r.GetResources()[0].GetName() != "b" {
		t.Errorf("got %v, want b alone", r)
	}
	f.acked(t, policies{"a": 1, "x.*": 1, "*": 1}) // it still has those
	c.ack(r)
	c.expect(globs, policies{}) // a first wildcard is always answered
	f.acked(t, policies{"a": 1, "b": 2, "x.*": 1, "*": 1})
	f.set(policies{"a": 1, "b": 2, "*": 1})
	c.expect(globs, policies{"x.*": -1})
	f.acked(t, policies{"a": 1, "b": 2, "*": 1})
}

func versions(r *discovery.DeltaDiscoveryResponse) map[string]string {
	out := map[string]string{}
	for _, each := range r.GetResources() {
		out[each.GetName()] = each.GetVersion()
	}
	return out
}

func TestAskingForOneOfAllAgain(t *testing.T) {
	f := serve(t, policies{"*": 1, "a*": 1, "b*": 1})
	c := f.connect(t, "n", "i")
	c.subscribe(globs, "*")
	c.expect(globs, policies{"*": 1, "a*": 1, "b*": 1})
	ask := func(name string) {
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: globs,
			ResourceNamesSubscribe: []string{name}, ResourceNamesUnsubscribe: []string{name}})
	}
	ask("a*")
	c.expect(globs, policies{"a*": 1})
	ask("gone*")
	ask("*") // which is also the wildcard: all come
	c.next() // of gone*, which the server never had
	c.expect(globs, policies{"*": 1, "a*": 1, "b*": 1})
	f.set(policies{"*": 1, "a*": 2, "b*": 1})
	c.expect(globs, policies{"a*": 2}) // the wildcard holds on
	f.acked(t, policies{"*": 1, "a*": 2, "b*": 1})
}

// A second process with the node id of one that is connected is refused, and the first one goes on.
// The same process may come again over another connection, and so may a restarted one as soon as
// its last connection has ended.
func TestASecondSessionOfANodeIsRefused(t *testing.T) {
	f := serve(t, policies{"a": 1})
	one, two := f.connect(t, "n", "i1"), f.connect(t, "n", "i2")
	one.subscribe(topics, "a")
	one.expect(topics, policies{"a": 1})
	two.subscribe(topics, "a")
	for range two.got {
		t.Error("the second one is told something")
	}
	if status.Code(two.err) != codes.AlreadyExists || !strings.Contains(two.err.Error(), `"n" is in use`) {
		t.Errorf("the second one ends with %v", two.err)
	}
	f.set(policies{"a": 2})
	one.expect(topics, policies{"a": 2})
	list := f.registry.Sidecars()
	if len(list) != 1 || list[0].RefusedSessions == nil || list[0].RefusedSessions.Count != 1 || list[0].RefusedSessions.Address != "10.0.0.1:8083" {
		t.Errorf("shown is %+v", list)
	}
	again := f.connect(t, "n", "i1")
	again.subscribe(topics, "a")
	again.expect(topics, policies{"a": 2})
	restarted := f.connect(t, "n", "i2")
	restarted.subscribe(topics, "a")
	again.close()
	restarted.expect(topics, policies{"a": 2})
	if list := f.registry.Sidecars(); len(list) != 1 || !list[0].Connected {
		t.Errorf("after its restart: %+v", list)
	}
}

func TestAnUnknownTypeIsMetWithSilence(t *testing.T) {
	f := serve(t, policies{"a": 1})
	c := f.connect(t, "n", "i")
	c.subscribe("type.googleapis.com/sluice.v9.Later", "*")
	c.subscribe(topics, "a")
	c.expect(topics, policies{"a": 1})
}

func TestWhatEndsAStream(t *testing.T) {
	f := serve(t, policies{"a": 1})
	for _, test := range []struct {
		what string
		do   func(c *client)
		code codes.Code
		says string
	}{
		{"no node id", func(c *client) { c.node.Id = ""; c.subscribe(topics, "a") }, codes.InvalidArgument, "node.id"},
		{"long metadata", func(c *client) {
			c.node.Metadata.Fields["version"].Kind = longString()
			c.subscribe(topics, "a")
		}, codes.InvalidArgument, "node.metadata"},
		{"no type", func(c *client) { c.subscribe("", "a") }, codes.InvalidArgument, "type URL"},
		{"a long name", func(c *client) { c.subscribe(topics, "ok", strings.Repeat("x", 300)) }, codes.InvalidArgument, "300 bytes"},
		{"too many names", func(c *client) {
			names := make([]string, xds.MaxSubscribed+1)
			for i := range names {
				names[i] = fmt.Sprint(i)
			}
			c.subscribe(topics, names[:1000]...)
			c.subscribe(topics, names[1000:]...)
		}, codes.ResourceExhausted, "100000 names"},
		{"too many types", func(c *client) {
			for i := range 33 {
				c.subscribe(fmt.Sprint("type", i), "*")
			}
		}, codes.ResourceExhausted, "types"},
	} {
		t.Run(test.what, func(t *testing.T) {
			c := f.connect(t, "n", "i")
			test.do(c)
			err := c.end()
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %v that says %q", err, test.code, test.says)
			}
		})
	}
	c := f.connect(t, "n", "i")
	c.subscribe(topics, "ok", "a", "5")
	c.expect(topics, policies{"a": 1, "ok": -1, "5": -1})
}

func TestStreamsEndWithRun(t *testing.T) {
	f := serve(t, policies{"a": 1})
	c := f.connect(t, "n", "i")
	c.subscribe(topics, "a")
	c.expect(topics, policies{"a": 1})
	f.stop()
	_ = c.end()
	eventually(t, "disconnected", func() bool { return f.registry.Known() == 0 })
}
