package sidecar

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/otlp"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
)

// Config configures a sidecar. DefaultConfig has every default, except for DataDir and NodeID.
type Config struct {
	Listen       string // the app API, HTTP and WebSocket: host:port or unix:/path
	ReplayListen string
	OpsListen    string

	DataDir string
	// InMemory keeps an embedded store in memory, for tests.
	InMemory bool
	Store    string // "embedded:", in DataDir, or a MongoDB connection string
	NodeID   string

	// Of a shared store only.
	Lease         time.Duration // without a beat, after which a sidecar's partitions go to others
	StoreTimeout  time.Duration // of one operation, retries included
	StoreLinger   time.Duration // after a batch of a topic, so that the next one grows
	SpoolMaxBytes int64         // of all topics together, while the store is away

	// DiskLowWater is how much of the disk has to be free for events to be stored on it: bytes, 0
	// for no bound, or LowWaterAuto.
	DiskLowWater int64

	// Outboxes are collections whose documents are published: a MongoDB connection string, '#' and
	// the collection.
	Outboxes []string

	// Captures are collections whose changes are published: DATABASE.COLLECTION, in Store, or as in
	// Outboxes; =TOPIC may follow. For each new word in CaptureReread, all of their documents are
	// published once.
	Captures      []string
	CaptureReread string

	// DaprApp is an application that was written for Dapr, and gets the events of its
	// subscriptions: http://127.0.0.1:PORT; "" for none. DaprAppID names its consumer groups; "":
	// NodeID.
	DaprApp, DaprAppID string
	// DaprAppIdentity is the entry of AuthConfig whose rights that application has; "" for all.
	DaprAppIdentity string

	ControlPlane    string              // host:port or unix:/path; "" for none
	ControlAccess   access.ClientConfig // credentials for it
	ReplayAdvertise string              // the replay API's address for other sidecars; "": as it is bound
	Policies        string              // a file; "" for the defaults, or those of the control plane
	AuthConfig      string
	AllowedOrigins  []string
	Insecure        bool // listen beyond loopback without authentication, and use other machines without TLS

	Peers         []string            // replay APIs of other sidecars, beside those of the control plane
	PeerTokenFile string              // the tokens between sidecars; "": none
	PeerAccess    access.ClientConfig // TLS to the other sidecars; its TokenFile is not used

	AuditTopics []string // topics whose accesses are logged; none: off
	AuditFile   string   // a file; "": Logger

	Limits            wire.Limits
	MaxTopicLabels    int           // further topics share one metrics label
	MaxTopics         int           // topics of the store; no more are created
	MaxGroups         int           // consumer groups of the store, likewise
	MaxTopicsEach     int           // topics created for one identity; 0: any number
	MaxGroupsEach     int           // consumer groups created for one identity, likewise
	MaxScheduled      int           // scheduled events of a topic, approximately
	GroupExpiry       time.Duration // how long a group may be unused; 0: for ever
	DrainTimeout      time.Duration // how long a graceful stop may take
	SlowClientTimeout time.Duration // without progress in reading
	ReceiveTimeout    time.Duration // of a message or a body, once it has begun
	MaxConnections    int           // of each listener
	MaxBufferedBytes  int64         // of all connections together
	RetentionInterval time.Duration // between two sweeps

	Version string
	Logger  *slog.Logger
	Exports *otlp.Exports // nil: nothing is sent
}

// DefaultConfig has the contract's defaults.
func DefaultConfig() Config {
	return Config{
		Listen:            "127.0.0.1:7070",
		ReplayListen:      "127.0.0.1:8083",
		OpsListen:         "127.0.0.1:7071",
		Store:             setting.Embedded,
		Lease:             10 * time.Second,
		StoreTimeout:      5 * time.Second,
		StoreLinger:       mongolog.DefaultLinger,
		SpoolMaxBytes:     4 << 30,
		DiskLowWater:      LowWaterAuto,
		Limits:            wire.DefaultLimits(),
		MaxTopicLabels:    1000,
		MaxTopics:         10_000,
		MaxGroups:         10_000,
		MaxTopicsEach:     1_000,
		MaxGroupsEach:     1_000,
		MaxScheduled:      1_000_000,
		DrainTimeout:      15 * time.Second,
		SlowClientTimeout: 5 * time.Minute,
		ReceiveTimeout:    time.Minute,
		MaxConnections:    20_000,
		MaxBufferedBytes:  128 << 20,
		RetentionInterval: 5 * time.Second,
		Version:           "devel",
		Logger:            slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// LowWaterAuto is a twentieth of the disk: 64 MiB at least, 1 GiB at the most, and no more than
// half of it.
const LowWaterAuto = pebblelog.LowWaterAuto

// ConfigError says that a setting is wrong.
type ConfigError = setting.Error

// Validate reports every setting that is wrong, or that does not go with another.
func (c Config) Validate() error {
	errs := []error{setting.CheckStore(c.Store)}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.ControlPlane == "" && c.ControlAccess != (access.ClientConfig{}) {
		bad("control-plane: is not set, but a certificate or token for it is")
	}
	if c.ControlPlane != "" && !strings.HasPrefix(c.ControlPlane, "unix:/") {
		if host, port, err := net.SplitHostPort(c.ControlPlane); err != nil || host == "" || port == "" {
			bad("control-plane: %q must be host:port or unix:/path", c.ControlPlane)
		}
	}
	if c.ControlPlane != "" {
		errs = append(errs, c.ControlAccess.CheckDial("control-plane", c.ControlPlane, "--control-plane-ca or --control-plane-tls", c.Insecure))
	}
	if c.DataDir == "" {
		bad("data-dir: must not be empty")
	}
	switch {
	case c.NodeID == "":
		bad("node-id: must not be empty")
	case !isName(c.NodeID):
		bad("node-id: %q begins or ends with a space, or has characters that cannot be printed", c.NodeID)
	}
	for _, l := range c.listeners() {
		if l.addr == "" {
			bad("%s: must be host:port or unix:/path", l.name)
		} else {
			errs = append(errs, access.CheckListener(l.name, l.addr, c.AuthConfig != "", c.Insecure))
		}
	}
	if err := (httpapi.Guard{AllowedOrigins: c.AllowedOrigins}).Validate(); err != nil {
		bad("allowed-origins: %w", err)
	}
	if err := audit.CheckTopics(c.AuditTopics); err != nil {
		bad("audit-topics: %w", err)
	}
	if c.AuditFile != "" && len(c.AuditTopics) == 0 {
		bad("audit-file: needs --audit-topics, which names the topics whose accesses are logged")
	}
	errs = append(errs, c.validatePeers()...)
	errs = append(errs, c.validateDaprApp()...)
	errs = append(errs, c.validateCaptures()...)
	errs = append(errs, c.validateBounds()...)
	if err := errors.Join(errs...); err != nil {
		return &ConfigError{Err: err}
	}
	return nil
}

// listener is one of the settings that name an address to listen on.
type listener struct{ name, addr string }

func (c Config) listeners() []listener {
	return []listener{{"listen", c.Listen}, {"replay-listen", c.ReplayListen}, {"ops-listen", c.OpsListen}}
}

// isName reports whether a text can name a sidecar to people and in headers, which lose surrounding
// spaces.
func isName(text string) bool {
	return utf8.ValidString(text) && text == strings.TrimSpace(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// minLease bounds Config.Lease from below.
const minLease = time.Second

// maxLinger bounds Config.StoreLinger: a publisher waits for its answer.
const maxLinger = time.Second

// validateBounds checks the numbers.
func (c Config) validateBounds() (errs []error) {
	for _, n := range []struct {
		name  string
		value int
	}{
		{"max-payload-bytes", c.Limits.PayloadBytes}, {"max-headers", c.Limits.HeaderCount},
		{"max-header-bytes", c.Limits.HeaderBytes}, {"max-key-bytes", c.Limits.KeyBytes},
		{"max-batch-events", c.Limits.BatchEvents}, {"max-batch-bytes", c.Limits.BatchBytes},
		{"max-frame-bytes", c.Limits.FrameBytes}, {"max-json-depth", c.Limits.JSONDepth},
		{"max-topic-labels", c.MaxTopicLabels}, {"max-topics", c.MaxTopics}, {"max-groups", c.MaxGroups}, {"max-scheduled", c.MaxScheduled},
		{"drain-timeout", int(c.DrainTimeout)}, {"slow-client-timeout", int(c.SlowClientTimeout)},
		{"retention-interval", int(c.RetentionInterval)}, {"receive-timeout", int(c.ReceiveTimeout)},
		{"max-connections", c.MaxConnections},
		{"store-timeout", int(c.StoreTimeout)}, {"spool-max-bytes", int(c.SpoolMaxBytes)},
	} {
		if n.value <= 0 {
			errs = append(errs, fmt.Errorf("%s: must be above 0", n.name))
		}
	}
	if c.MaxTopicsEach < 0 || c.MaxGroupsEach < 0 {
		errs = append(errs, errors.New("max-topics-per-identity, max-groups-per-identity: must be at least 0, which is any number"))
	}
	if c.GroupExpiry < 0 {
		errs = append(errs, errors.New("group-expiry: must be at least 0, which is never"))
	}
	if c.DiskLowWater < 0 && c.DiskLowWater != LowWaterAuto {
		errs = append(errs, errors.New("disk-low-water: must be auto, or a number of bytes of at least 0"))
	}
	if c.StoreLinger < 0 || c.StoreLinger > maxLinger {
		errs = append(errs, fmt.Errorf("store-linger: must be 0 to %s", maxLinger))
	}
	if c.Lease < minLease {
		errs = append(errs, fmt.Errorf("lease: %s is too short for heartbeats to arrive in time; at least %s", c.Lease, minLease))
	}
	for _, o := range c.Outboxes {
		if url, collection, _ := strings.Cut(o, "#"); !setting.IsMongoDB(url) || collection == "" {
			errs = append(errs, errors.New("outbox: must be a MongoDB connection string, '#' and the name of a collection, like mongodb://host/app#outbox"))
		}
	}
	if c.Limits.PayloadBytes > c.Limits.FrameBytes {
		errs = append(errs, fmt.Errorf("max-payload-bytes: %d does not fit into a frame of max-frame-bytes (%d)", c.Limits.PayloadBytes, c.Limits.FrameBytes))
	}
	if most := int64(max(c.Limits.FrameBytes, c.Limits.BatchBytes)); c.MaxBufferedBytes < 2*most {
		errs = append(errs, fmt.Errorf("max-buffered-bytes: %d is too little: at least twice the largest message or batch, which is %d bytes (max-frame-bytes, max-batch-bytes)", c.MaxBufferedBytes, most))
	}
	if setting.IsMongoDB(c.Store) {
		if most := document.MaxPayload(c.Limits); most == 0 {
			errs = append(errs, fmt.Errorf("max-header-bytes, max-headers, max-key-bytes: together they leave no room for a payload in a document of MongoDB, which holds %d bytes", document.MaxBytes))
		} else if c.Limits.PayloadBytes > most {
			errs = append(errs, fmt.Errorf("max-payload-bytes: %d does not fit into a document of MongoDB beside headers, key and tags; with the other limits as they are, at most %d", c.Limits.PayloadBytes, most))
		}
	}
	return errs
}
