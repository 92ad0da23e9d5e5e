package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	rpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/test/require"
)

// serve runs a control plane that knows these tokens, each "NAME" the token of an entry of role
// sidecar with the text of its further keys.
func serve(t *testing.T, tokens map[string]string, change ...func(*ControlPlane)) (c *ControlPlane, conn *grpc.ClientConn) {
	t.Helper()
	auth := "tokens:\n"
	for token, keys := range tokens {
		sum := sha256.Sum256([]byte(token))
		auth += fmt.Sprintf(" - {name: %s, role: sidecar, sha256: %s%s}\n", token, hex.EncodeToString(sum[:]), keys)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "auth.yaml")
	require.NoError(t, os.WriteFile(file, []byte(auth), 0o600))
	c, err := New(t.Context(), Config{
		XDSListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", DataDir: dir, Store: setting.Embedded, Name: "cp", AuthConfig: file,
		DrainTimeout: time.Second, StoreTimeout: time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(t, err)
	for _, f := range change {
		f(c)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx, func() error { close(ready); return nil }); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	<-ready
	return c, dialXDS(t, c)
}

func dialXDS(t *testing.T, c *ControlPlane) *grpc.ClientConn {
	t.Helper()
	address, _ := c.Addresses()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// as returns the context of a call with the token.
func as(t *testing.T, token string) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// join opens a stream under a node id, and returns once it is answered, or ends.
func join(t *testing.T, conn *grpc.ClientConn, token, node, instance string, more map[string]*structpb.Value) error {
	t.Helper()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(as(t, token))
	if err != nil {
		return err
	}
	about := map[string]*structpb.Value{
		policypb.InstanceSecret: structpb.NewStringValue(instance), "replay": structpb.NewStringValue("10.0.0.66:8083"),
		"store_id": structpb.NewStringValue("s"),
	}
	for key, value := range more {
		about[key] = value
	}
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{ // Recv returns the error of the stream
		Node: &core.Node{Id: node, Metadata: &structpb.Struct{Fields: about}}, TypeUrl: policypb.PolicyPackType,
		ResourceNamesSubscribe: []string{"*"},
	})
	_, err = stream.Recv()
	return err
}

// askQuota opens a stream of the quota service, and returns how it ends.
func askQuota(t *testing.T, conn *grpc.ClientConn, token, node, instance string) error {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(as(t, token), policypb.StreamNodeID, node, policypb.StreamInstanceSecret, instance)
	stream, err := rlqs.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(ctx)
	if err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err = stream.Recv(); err == io.EOF {
		return nil
	}
	return err
}

// A sidecar's token is used under another sidecar's node id: for policies, for the list of peers,
// for a goodbye in the other's name, and for its quota.
func TestATokenIsForItsNodesAlone(t *testing.T) {
	c, conn := serve(t, map[string]string{"orders-token-0123456789": `, sidecar: "orders-*"`, "any-token-0123456789": "",
		"two-token-0123456789": `, sidecar: [a, "b-*"]`})
	goodbye := map[string]*structpb.Value{"drained": structpb.NewBoolValue(true)}
	refused := int64(0)
	for _, tc := range []struct {
		token, node, allowed string // allowed: what the refusal names; "": it is let in
	}{
		{"orders-token-0123456789", "orders-1", ""},
		{"orders-token-0123456789", "billing-1", `"billing-1"; allowed are orders-*`},
		{"orders-token-0123456789", "orders", `"orders"; allowed are orders-*`},
		{"any-token-0123456789", "billing-1", ""},
		{"two-token-0123456789", "a", ""},
		{"two-token-0123456789", "b-7", ""},
		{"two-token-0123456789", "a-7", `"a-7"; allowed are a, b-*`},
	} {
		instance := tc.token + tc.node
		policies := join(t, conn, tc.token, tc.node, instance, nil)
		quota := askQuota(t, conn, tc.token, tc.node, instance)
		for what, err := range map[string]error{
			"policies": policies, "quota": quota, "goodbye": join(t, conn, tc.token, tc.node, instance, goodbye),
		} {
			switch {
			case tc.allowed != "":
				refused++
				if rpcstatus.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), tc.allowed) {
					t.Errorf("%s, %s as %s: %v", what, tc.token, tc.node, err)
				}
			case what == "goodbye" && rpcstatus.Code(err) == codes.Aborted: // which is its answer
			case err != nil:
				t.Errorf("%s, %s as %s: %v", what, tc.token, tc.node, err)
			}
		}
	}
	for _, s := range c.registry.Sidecars() {
		if s.NodeID == "orders" || s.NodeID == "a-7" {
			t.Errorf("one that was refused is shown: %+v", s)
		}
	}
	if got := c.uncovered.Load(); got != refused {
		t.Errorf("%d refusals are counted of %d", got, refused)
	}
}

// A sidecar's credential is for some stores alone: another one is refused in its first request, in a later one, in a goodbye, in the
// list of its topics and in the connections by which people reach a store.
func TestACredentialIsForItsStores(t *testing.T) {
	const token = "orders-token-0123456789"
	c, conn := serve(t, map[string]string{token: `, sidecar: "orders-*", stores: [s, "orders-*"]`})
	on := func(store string) map[string]*structpb.Value {
		return map[string]*structpb.Value{"store_id": structpb.NewStringValue(store)}
	}
	goodbye := on("theirs")
	goodbye["drained"] = structpb.NewBoolValue(true)
	late, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(as(t, token))
	require.NoError(t, err)
	about := &core.Node{Id: "orders-2", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		policypb.InstanceSecret: structpb.NewStringValue("second"),
	}}}
	says := func() error {
		_ = late.Send(&discovery.DeltaDiscoveryRequest{Node: about, TypeUrl: policypb.PolicyPackType, ResourceNamesSubscribe: []string{"*"}})
		_, err := late.Recv()
		return err
	}
	for what, err := range map[string]error{
		"s": join(t, conn, token, "orders-1", "first", nil), "orders-x": join(t, conn, token, "orders-3", "third", on("orders-x")),
		"none": says(), "topics of s": openFor(t, conn, "s", policypb.TopicsMethod, token, "orders-1", "first"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	about.Metadata.Fields["store_id"] = structpb.NewStringValue("theirs")
	for what, err := range map[string]error{
		"first": join(t, conn, token, "orders-4", "fourth", on("theirs")), "later": says(),
		"goodbye": join(t, conn, token, "orders-5", "fifth", goodbye),
		"topics":  openFor(t, conn, "theirs", policypb.TopicsMethod, token, "orders-1", "first"),
		"tunnel":  openFor(t, conn, "theirs", "/sluice.v1.Tunnel/Connect", token, "orders-1", "first"),
	} {
		refusal := `"` + token + `" may not join on store "theirs"; allowed are s, orders-*`
		if rpcstatus.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), refusal) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if c.registry.HasStore("theirs") {
		t.Error("the store is shown")
	}
}

// Credentials signed through two control planes of one store count at both.
func TestCredentialsOfPeers(t *testing.T) {
	c, conn := serve(t, map[string]string{"orders-token-0123456789": `, sidecar: "orders-*"`})
	issuer, err := c.openIssuer(t.Context()) // as another one has it
	require.NoError(t, err)
	other, err := access.NewPeerKey("b")
	require.NoError(t, err)
	credential, err := issuer.Issue("b", other.Public())
	if err == nil {
		err = other.Take(credential, issuer.Public())
	}
	require.NoError(t, err)
	key, err := access.NewPeerKey("orders-1")
	require.NoError(t, err)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(as(t, "orders-token-0123456789"))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: "orders-1", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			policypb.PeerKey: structpb.NewStringValue(policypb.EncodeKey(key.Public())),
		}}},
		TypeUrl: policypb.PeerCredentialType, ResourceNamesSubscribe: []string{policypb.PeerCredentialName("orders-1")},
	}))
	response, err := stream.Recv()
	if err != nil || len(response.GetResources()) != 1 {
		t.Fatalf("%v, %v", response, err)
	}
	var m structpb.Struct
	require.NoError(t, response.GetResources()[0].GetResource().UnmarshalTo(&m))
	credential, by, err := policypb.ReadPeerCredential(&m)
	if err == nil {
		err = key.Take(credential, by)
	}
	require.NoError(t, err)
	if node, err := other.Check(key.Token("b")); err != nil || node != "orders-1" {
		t.Errorf("%q, %v", node, err)
	}
	if node, err := key.Check(other.Token("orders-1")); err != nil || node != "b" {
		t.Errorf("%q, %v", node, err)
	}
	bad := map[string]*structpb.Value{policypb.PeerKey: structpb.NewStringValue("AAAA")}
	if err := join(t, conn, "orders-token-0123456789", "orders-2", "i", bad); rpcstatus.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), policypb.PeerKey) {
		t.Errorf("a key that is none: %v", err)
	}
}

// A second process has the node id of one that is connected, and a credential for it.
func TestASecondProcessGetsNothing(t *testing.T) {
	_, conn := serve(t, map[string]string{"orders-token-0123456789": `, sidecar: "orders-*"`})
	require.NoError(t, join(t, conn, "orders-token-0123456789", "orders-1", "first", nil))
	if err := join(t, conn, "orders-token-0123456789", "orders-1", "second", nil); rpcstatus.Code(err) != codes.AlreadyExists {
		t.Errorf("policies: %v", err)
	}
	goodbye := map[string]*structpb.Value{"drained": structpb.NewBoolValue(true)}
	if err := join(t, conn, "orders-token-0123456789", "orders-1", "second", goodbye); rpcstatus.Code(err) != codes.AlreadyExists {
		t.Errorf("goodbye: %v", err)
	}
	if err := askQuota(t, conn, "orders-token-0123456789", "orders-1", "second"); rpcstatus.Code(err) != codes.AlreadyExists {
		t.Errorf("quota: %v", err)
	}
	if err := askQuota(t, conn, "orders-token-0123456789", "orders-1", "first"); err != nil {
		t.Errorf("the first one's quota: %v", err)
	}
}

// A client has a credential of a living sidecar's prefix, reads all that the control plane tells sidecars, and presents it as its
// own: it gets neither the session, nor a part of the quota, nor is a goodbye or a list of topics taken from it. The sidecar comes
// back to its place.
func TestALivingSidecarsPlaceIsTakenByNobody(t *testing.T) {
	const token = "orders-token-0123456789"
	c, conn := serve(t, map[string]string{token: `, sidecar: "orders-*"`})
	secret := func(text string) *structpb.Value { return structpb.NewStringValue(text) }
	living := dialXDS(t, c)
	folder := map[string]*structpb.Value{policypb.FolderSecret: secret("folder")}
	require.NoError(t, join(t, living, token, "orders-1", "first", folder))
	instance, folderID := readPeer(t, conn, token, "orders-1")
	if instance == "first" || folderID == "folder" || instance == "" || folderID == "" {
		t.Fatalf("others are told instance %q of folder %q", instance, folderID)
	}
	forged := map[string]*structpb.Value{policypb.FolderSecret: secret(folderID)}
	goodbye := maps.Clone(forged)
	goodbye["drained"] = structpb.NewBoolValue(true)
	attempts := func(when string) {
		t.Helper()
		var all sync.WaitGroup
		defer all.Wait()
		for what, attempt := range map[string]func() error{
			"policies": func() error { return join(t, conn, token, "orders-1", instance, forged) },
			"goodbye":  func() error { return join(t, conn, token, "orders-1", instance, goodbye) },
			"quota":    func() error { return askQuota(t, conn, token, "orders-1", instance) },
			"topics":   func() error { return openFor(t, conn, "s", policypb.TopicsMethod, token, "orders-1", instance) },
		} {
			all.Go(func() {
				if err := attempt(); rpcstatus.Code(err) != codes.AlreadyExists {
					t.Errorf("%s, %s: %v; want AlreadyExists", when, what, err)
				}
			})
		}
	}
	attempts("while it is connected")
	if err := askQuota(t, living, token, "orders-1", "first"); err != nil {
		t.Errorf("the living one's quota: %v", err)
	}
	require.NoError(t, living.Close())
	for c.registry.Sidecars()[0].Connected && pause.For(t.Context(), time.Millisecond) {
	}
	attempts("a moment after its connection has ended")
	if !slices.ContainsFunc(c.registry.Missing(), func(e fleet.Entry) bool { return e.ID == "orders-1" }) {
		t.Error("it is not missing any more")
	}
	require.NoError(t, join(t, dialXDS(t, c), token, "orders-1", "second", folder))
}

// readPeer subscribes to the replay peers as another sidecar, and returns what it is told of one.
func readPeer(t *testing.T, conn *grpc.ClientConn, token, node string) (instance, folderID string) {
	t.Helper()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(as(t, token))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{
		Node:    &core.Node{Id: "orders-9", Metadata: &structpb.Struct{}},
		TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"*"},
	}))
	for {
		response, err := stream.Recv()
		require.NoError(t, err)
		for _, r := range response.GetResources() {
			var group endpoint.ClusterLoadAssignment
			require.NoError(t, r.GetResource().UnmarshalTo(&group))
			for _, e := range group.GetEndpoints()[0].GetLbEndpoints() {
				about := e.GetMetadata().GetFilterMetadata()["sluice"].GetFields()
				if about["node_id"].GetStringValue() == node {
					return about["instance"].GetStringValue(), about["folder_id"].GetStringValue()
				}
			}
		}
		require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResponseNonce: response.GetNonce()}))
	}
}

// openFor opens a stream for a store, such as that which reports topics, and returns how it ends or nil if it is answered.
func openFor(t *testing.T, conn *grpc.ClientConn, store, method, token, node, instance string) error {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(as(t, token), policypb.StreamNodeID, node, policypb.StreamInstanceSecret, instance,
		policypb.StreamStoreID, store)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	return stream.RecvMsg(new(emptypb.Empty))
}

// A credential of a prefix lets in as many nodes as its entry says; one more is refused, and named.
func TestNodesOfACredential(t *testing.T) {
	_, conn := serve(t, map[string]string{"orders-token-0123456789": `, sidecar: [x, "orders-*"], nodes: 2`})
	for _, node := range []string{"orders-1", "orders-2", "x"} {
		require.NoError(t, join(t, conn, "orders-token-0123456789", node, node, nil))
	}
	err := join(t, conn, "orders-token-0123456789", "orders-3", "i", nil)
	if rpcstatus.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), `"orders-3" is one more than the 2`) {
		t.Errorf("one more: %v", err)
	}
}
