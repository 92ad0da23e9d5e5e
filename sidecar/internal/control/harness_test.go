package control

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
	"github.com/sluice-bus/sluice/test/require"
)

const packType = policypb.PolicyPackType

// plane is a control plane that serves what a test puts into it.
type plane struct{ *xdstest.Server }

func newPlane(t testing.TB) plane { return plane{xdstest.New(t, packType, peersType)} }

// put puts policies that have their version as their number of partitions, each in a pack of its
// own; 0: there is none of that name any more.
func (p plane) put(versions map[string]int64) {
	packs := map[string]proto.Message{}
	for name, version := range versions {
		if packs[packName(name)] = nil; version > 0 {
			packs[packName(name)] = packOf(policyOf(name, version))
		}
	}
	p.Put(packType, packs)
}

func packName(policy string) string { return "policies/" + policy }

// settled is a policy and what holds for it.
type settled struct {
	name     string
	version  int64
	settings *policypb.Settings
}

func policyOf(name string, version int64) settled { return settled{name, version, settingsOf(version)} }

// packOf is a pack of policies.
func packOf(policies ...settled) *policypb.PolicyPack {
	m := &policypb.PolicyPack{}
	for i, p := range policies {
		body, err := proto.Marshal(p.settings)
		if err != nil {
			panic(err)
		}
		m.Settings = append(m.Settings, body)
		m.Policies = append(m.Policies, &policypb.PolicyPack_Policy{Name: p.name, Version: p.version, Settings: uint32(i)})
	}
	return m
}

func settingsOf(version int64) *policypb.Settings {
	e := policy.Defaults()
	e.Partitions = int(version)
	return policypb.FromEffective(&e)
}

// ownSecret is that of the instance of each sidecar under test.
const ownSecret = "i1"

// peers puts sidecars that are called like their instances into one resource. "i1" is the sidecar under test.
func (p plane) peers(name string, instances ...string) {
	p.Put(peersType, map[string]proto.Message{name: assignment(name, instances...)})
}

func assignment(name string, instances ...string) *endpointv3.ClusterLoadAssignment {
	group := &endpointv3.LocalityLbEndpoints{}
	for i, instance := range instances {
		if instance == ownSecret {
			instance = policypb.PublicID(ownSecret)
		}
		fields := map[string]*structpb.Value{}
		for key, value := range map[string]string{"node_id": "node-" + instance, "instance": instance, "store_id": "store"} {
			fields[key] = structpb.NewStringValue(value)
		}
		group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
				Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(1000 + i)}}}}}},
			Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{metadataKey: {Fields: fields}}},
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{group}}
}

// sidecar is a Control under test.
type sidecar struct {
	*Control
	logged *bytes.Buffer // read it when it has stopped
	stop   func()
}

// settings are all that a Control is told.
type settings struct {
	Config
	About
}

// open makes one that does not run.
func open(t testing.TB, p plane, change func(*settings)) *sidecar {
	t.Helper()
	s := &sidecar{logged: &bytes.Buffer{}}
	cfg := settings{
		Config: Config{Address: p.Address, NodeID: "n1", InstanceSecret: ownSecret, Version: "test",
			Logger: slog.New(slog.NewTextHandler(s.logged, nil))},
		About: About{StoreID: func() string { return "s1" }},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if s.Control, err = Open(cfg.Config); err != nil {
		t.Fatal(err)
	}
	s.self = cfg.About
	s.stop = sync.OnceFunc(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// start makes one that runs until it is stopped, or the test ends.
func start(t testing.TB, p plane, change func(*settings)) *sidecar {
	t.Helper()
	s := open(t, p, change)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, s.self) }()
	closeConn := s.stop
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		closeConn()
	})
	t.Cleanup(s.stop)
	return s
}

// sync waits for the policies and peers, before which nothing is kept.
func (s *sidecar) sync(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, s.AwaitSynced(ctx))
	xdstest.Soon(t, "the peers", s.PeersKnown)
}

// version is that of the policy in force for a topic; 8 is the defaults'.
func (s *sidecar) version(topic string) int {
	return s.Policies().Load().Topic(topic).Partitions
}

// source says where the policy of a name comes from.
func (s *sidecar) source(name string) string {
	for _, p := range s.Policies().Load().List() {
		if p.Name == name {
			return p.Source
		}
	}
	return ""
}

// newAway is a control plane that is never there.
func newAway() *xdstest.Server { return &xdstest.Server{Address: "unix:/nowhere"} }
