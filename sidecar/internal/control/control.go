// Package control is the sidecar's side of its control plane: the policies in force, the other
// sidecars, and a connection that other packages share. It has all policies, and stores them on
// disk, so that a sidecar that starts without a control plane uses the last ones.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/xds"
)

const (
	// confirmedAfter is how long policies of an earlier process may not remove events unless the
	// control plane has confirmed them.
	confirmedAfter = time.Minute
	// introduceEvery is the interval of the checks whether the node has changed since the control
	// plane was told.
	introduceEvery = time.Second
	// maxSettingsRead bounds the parsed contents of policies that are remembered.
	maxSettingsRead = 4096
)

// The sources of policies, as in /v1/status.
const (
	sourceLive   = "control-plane"
	sourceCached = "control-plane (cached)" // of an earlier process, and not confirmed
)

const (
	// connectBackoff bounds the wait between two attempts to connect, which is added to that
	// between two streams.
	connectBackoff = time.Second
	// connectTimeout bounds one attempt.
	connectTimeout = 5 * time.Second
	// pingAfter is how long a connection may be silent before it is pinged, and pingTimeout how
	// long the answer may take.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

// Config is what a Control needs. Address, NodeID, InstanceSecret and Logger are required.
type Config struct {
	// Address is the control plane's: host:port, or unix:/path.
	Address string
	Dial    []grpc.DialOption // TLS and the token; nil: neither

	NodeID         string
	InstanceSecret string // of this process
	Version        string // of the program

	// PeerKey is this sidecar's public key. OnCredential receives the credential that the control plane
	// issues for it, with the issuer's key; nil: none is requested.
	PeerKey      []byte
	OnCredential func(credential string, issuer []byte) error

	// Dir is the folder of the cache; "": there is none.
	Dir string
	// Fallback is in force until there are policies of the control plane, or of the cache; nil: the
	// defaults are.
	Fallback *policy.Snapshot
	Logger   *slog.Logger
}

// About is what a sidecar tells of itself while it runs. A nil field tells nothing.
type About struct {
	// StoreID identifies the sidecar's store; "" until a shared one was reached.
	StoreID func() string
	// FolderSecret is that of its data folder.
	FolderSecret string
	// Replay is the address of its replay API, host:port or unix:/path.
	Replay func() string
	// UnmetConcerns are the write concerns that the store does not meet, by topic.
	UnmetConcerns func() map[string]string
}

// Control is the sidecar's side of its control plane. Its methods are safe for concurrent use.
type Control struct {
	cfg      Config
	instance string // the public id of this process
	conn     *grpc.ClientConn
	client   *xds.Client
	current  *policy.Current
	peers    atomic.Pointer[[]Peer]
	synced   chan struct{} // closed when this process has received the policies
	changed  pause.Wake    // there is something to save
	self     About         // Run's

	mu sync.Mutex
	// accepted are the resources that were accepted, by type and name.
	accepted map[string]map[string]*entry
	// have says that all policies were accepted, from the control plane or the cache; before that
	// no accepted policy is in force.
	have bool
	// peersKnown says that all peers were accepted.
	peersKnown bool
	// live says that this process has received the policies.
	live bool
	// revision is the highest that was in force, also in earlier processes: lower ones are refused.
	revision policypb.Revision
	// unsaved says that the cache lacks something that was accepted.
	unsaved bool
	// previous is the instance that wrote the cache: this sidecar's last process.
	previous string

	opened time.Time // never changes
	// sentNode is the node as the open stream has it.
	sentNode atomic.Pointer[corev3.Node]

	read settingsRead // of apply, which is called by one goroutine

	saving  sync.Mutex // taken before mu
	saveAt  time.Time  // not before this
	writes  uint64     // of the cache; guarded by saving
	failing bool       // the last save has failed
}

// Open reads the cache, and puts its policies in force. It requests nothing before [Control.Run].
func Open(cfg Config) (*Control, error) {
	c := &Control{
		cfg: cfg, instance: policypb.PublicID(cfg.InstanceSecret), opened: time.Now(), synced: make(chan struct{}),
		changed: pause.NewWake(), read: settingsRead{},
		accepted: map[string]map[string]*entry{policypb.PolicyPackType: {}, peersType: {}},
	}
	c.restore()
	first := cfg.Fallback
	if c.have {
		first = c.snapshot()
	} else if first == nil {
		first = policy.NewResolvedSnapshot(nil)
	}
	c.current = policy.NewCurrent(first)
	c.listPeers()
	var err error
	if c.conn, err = dial(cfg); err != nil {
		return nil, fmt.Errorf("control plane %s: %w", cfg.Address, err)
	}
	types := []xds.Type{
		{URL: policypb.PolicyPackType, Together: true, Versions: c.versions(policypb.PolicyPackType)},
		{URL: peersType, Versions: c.versions(peersType)},
	}
	if cfg.OnCredential != nil {
		// The server answers in this order. When a whole fleet connects at once, all policies may
		// take longer than the first answer may: the small credential comes first.
		types = append([]xds.Type{{URL: policypb.PeerCredentialType, Names: []string{policypb.PeerCredentialName(cfg.NodeID)}}}, types...)
	}
	c.client, err = xds.New(xds.Config{
		Conn: c.conn,
		Node: func() *corev3.Node {
			node := c.node()
			c.sentNode.Store(node)
			return node
		},
		Types:  types,
		Apply:  c.apply,
		Keep:   c.keepNow,
		Logger: cfg.Logger.With("address", cfg.Address),
	})
	if err != nil {
		return nil, errors.Join(err, c.conn.Close())
	}
	return c, nil
}

// dial makes the connection. Its first use opens it.
func dial(cfg Config) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: xds.DefaultMinBackoff, Multiplier: 1.6, Jitter: 0.5, MaxDelay: connectBackoff},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
	}
	return grpc.NewClient(cfg.Address, append(options, cfg.Dial...)...) // the last of two options counts
}

// node describes this sidecar.
func (c *Control) node() *corev3.Node {
	about := map[string]*structpb.Value{
		policypb.InstanceSecret: structpb.NewStringValue(c.cfg.InstanceSecret),
		policypb.FolderSecret:   structpb.NewStringValue(c.self.FolderSecret),
		"version":               structpb.NewStringValue(c.cfg.Version),
	}
	for key, value := range map[string]func() string{"store_id": c.self.StoreID, "replay": c.self.Replay} {
		if value != nil {
			about[key] = structpb.NewStringValue(value())
		}
	}
	if c.cfg.PeerKey != nil {
		about[policypb.PeerKey] = structpb.NewStringValue(policypb.EncodeKey(c.cfg.PeerKey))
	}
	if c.self.UnmetConcerns != nil {
		concerns := c.self.UnmetConcerns()
		fields := map[string]*structpb.Value{}
		for _, topic := range slices.Sorted(maps.Keys(concerns))[:min(len(concerns), policypb.MaxUnmetConcerns)] {
			fields[topic] = structpb.NewStringValue(concerns[topic])
		}
		about[policypb.UnmetConcerns] = structpb.NewStructValue(&structpb.Struct{Fields: fields})
	}
	return &corev3.Node{Id: c.cfg.NodeID, Metadata: &structpb.Struct{Fields: about}}
}

// AnnounceDrained tells the control plane that this sidecar leaves no events behind: its store has other
// sidecars, and its spool is empty. A replay of the fleet then does not report it as missing. Call
// it after [Control.Run] has returned. After an error the control plane may show the sidecar as
// missing.
func (c *Control) AnnounceDrained(ctx context.Context) error {
	node := c.node()
	node.Metadata.Fields["drained"] = structpb.NewBoolValue(true)
	return c.client.Say(ctx, peersType, node)
}

// introduce tells the control plane the write concerns that the store does not meet, and the store
// once it is known: a shared one may be reached only after the stream was opened.
func (c *Control) introduce(ctx context.Context) error {
	tick := time.NewTicker(introduceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		sent, current := c.sentNode.Load(), c.node()
		if sent != nil && c.client.Connected() && !proto.Equal(sent, current) {
			c.client.Introduce()
		}
	}
}

// Run talks to the control plane until ctx ends, saves what is not saved, and returns nil. It is
// called once.
func (c *Control) Run(ctx context.Context, self About) error {
	c.self = self
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return c.client.Run(running) })
	g.Go(func() error { return c.keep(running) })
	g.Go(func() error { return c.introduce(running) })
	err := g.Wait()
	c.saveNow() // changes that came while keep was ending
	return err
}

// Close closes the connection. It is called once, when Run has returned and no other package uses
// [Control.Conn] any more, or instead of Run.
func (c *Control) Close() error { return c.conn.Close() }

// Policies returns the policies in force.
func (c *Control) Policies() *policy.Current { return c.current }

// Conn returns the connection to the control plane.
func (c *Control) Conn() grpc.ClientConnInterface { return c.conn }

// Cached reports whether policies of the control plane are in force, also those of an earlier
// process.
func (c *Control) Cached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.have
}

// Confirmed reports whether the policies in force may remove events: the control plane has sent or
// confirmed them to this process, or was away for so long that those of an earlier process count.
func (c *Control) Confirmed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live || time.Since(c.opened) >= confirmedAfter
}

// AwaitSynced waits until the control plane has sent all policies to this process. The error is the
// context's.
func (c *Control) AwaitSynced(ctx context.Context) error {
	select {
	case <-c.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AwaitSyncedOrAway waits until the control plane has sent all policies or cannot be reached: no
// newer policies are expected soon.
func (c *Control) AwaitSyncedOrAway(ctx context.Context) {
	for {
		state, changed := c.client.Watch()
		if state.Away() {
			return
		}
		select {
		case <-c.synced:
			return
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Status is the state of the connection to the control plane.
type Status struct {
	Address   string    `json:"address"`
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"` // when Connected changed
	// Error is why there is no connection.
	Error string `json:"error,omitempty"`
	// URL is that of its REST API, as it said last; "": it has not, in this process.
	URL string `json:"url,omitempty"`
}

// Status returns the state of the connection.
func (c *Control) Status() Status {
	s := c.client.State()
	out := Status{Address: c.cfg.Address, Connected: s.Connected, Since: s.Since.UTC(), URL: restURL(s.Server, c.cfg.Address)}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	return out
}
