package sidecar

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/logging"
	"github.com/sluice-bus/sluice/internal/otlp"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
)

// Config has the settings of a sidecar. A field's tags describe its flag, which is also a variable
// of the environment and a key of the configuration file; program.Defaults fills in the defaults.
type Config struct {
	Listen       string `default:"127.0.0.1:7070" placeholder:"ADDR" help:"App API: host:port (port 0 picks one) or unix:/path."`
	ReplayListen string `default:"127.0.0.1:8083" placeholder:"ADDR" help:"Replay and export API."`
	OpsListen    string `default:"127.0.0.1:7071" placeholder:"ADDR" help:"Health, metrics and status."`

	DataDir string `default:"${data_dir}" help:"Folder of the embedded log, or of the spool of a shared store."`
	Store   string `secret:"" default:"embedded:" placeholder:"URL" help:"Event log: embedded: or, shared with other sidecars, mongodb://…"`
	NodeID  string `default:"${host}" placeholder:"NAME" help:"Name of this sidecar."`

	Lease         time.Duration `min:"1s" default:"10s" help:"Shared store: time after which others take over from a silent sidecar."`
	StoreTimeout  time.Duration `min:"1ms" default:"5s" help:"Shared store: how long one operation is tried until it counts as away."`
	SpoolMaxBytes int64         `min:"0" default:"4294967296" help:"Shared store: most bytes kept in --data-dir while it is away; 0: none."`
	DiskLowWater  LowWater      `default:"auto" placeholder:"BYTES" help:"Free bytes of the disk below which nothing is published to it; 0: none."`

	// Outboxes are MongoDB collections whose inserted documents are published: a connection string,
	// '#' and the collection.
	Outboxes []string `name:"outbox" secret:"" sep:"none" placeholder:"URL#COLLECTION" help:"Publish the documents of this outbox."`
	// Captures are collections whose changes are published: DATABASE.COLLECTION, in Store, or as in
	// Outboxes; =TOPIC may follow.
	Captures []string `name:"capture" secret:"" sep:"none" placeholder:"DB.COLLECTION[=TOPIC]" help:"Publish the changes of this collection."`

	Push string `placeholder:"FILE" help:"YAML file of HTTP endpoints that events are POSTed to, by topic and group."`

	DaprApp           string `placeholder:"URL" help:"Application written for Dapr that gets its subscriptions' events: http:// or grpc://127.0.0.1:PORT."`
	DaprAppID         string `name:"dapr-app-id" placeholder:"NAME" help:"Its name, which begins those of its consumer groups."`
	DaprAppIdentity   string `placeholder:"NAME" help:"Entry of --auth-config with the rights of that application; needed where clients need tokens."`
	DaprAppTokenFile  string `placeholder:"FILE" help:"File with the token that the application is shown. Default: that of the environment's APP_API_TOKEN."`
	DaprSubscriptions string `placeholder:"PATH" help:"YAML file of Dapr Subscriptions of that application, or a folder of such files."`
	DaprGRPCListen    string `name:"dapr-grpc-listen" placeholder:"ADDR" help:"Dapr's API over gRPC, for its SDKs; by convention 127.0.0.1:50001."`

	Policies        string   `placeholder:"FILE" help:"YAML file with policies; with --control-plane they hold until its first answer."`
	ControlPlane    string   `placeholder:"HOST:PORT" help:"Control plane that gives the policies and names the other sidecars."`
	Peers           []string `placeholder:"HOST:PORT" help:"Replay APIs of other sidecars, for scope=fleet, without a control plane."`
	ReplayAdvertise string   `placeholder:"ADDR" help:"Where other sidecars reach the replay API. Default: the address bound."`

	AuthConfig     string   `placeholder:"FILE" help:"YAML file with tokens, rights and TLS, which is needed to listen beyond loopback."`
	AllowedOrigins []string `placeholder:"ORIGIN" help:"Web origins (https://host[:port]) whose pages may use the listeners."`
	Insecure       bool     `help:"Listen beyond loopback without authentication, and use other machines without TLS."`

	AuditTopics []string `placeholder:"TOPIC" help:"Topics, or prefixes followed by *, whose accesses are logged. Default: none."`
	AuditFile   string   `placeholder:"FILE" help:"Append these lines to this file, as JSON. Default: to the log."`

	// Limits are those of the contract's section 2 that differ from its defaults; sizes are in bytes.
	Limits map[string]int `mapsep:"," help:"Event limits: payload, headers, header-bytes, key, batch, batch-bytes, frame, json-depth."`

	MaxTopics        int   `min:"1" default:"10000" help:"Most topics of the store, of which one identity may create a tenth."`
	MaxGroups        int   `min:"1" default:"10000" help:"Most consumer groups of the store, likewise."`
	MaxScheduled     int   `min:"1" default:"1000000" help:"Most scheduled events of a topic."`
	MaxTopicLabels   int   `min:"1" default:"1000" help:"Most topics with metrics of their own; others share the label _other."`
	MaxConnections   int   `min:"1" default:"20000" help:"Most connections of each listener; others are refused as overloaded. With tokens one identity may have a quarter."`
	MaxBufferedBytes int64 `default:"134217728" help:"Most memory for the requests and unsettled events of all connections."`

	DrainTimeout      time.Duration `min:"1ms" default:"15s" help:"Longest time of a graceful stop."`
	SlowClientTimeout time.Duration `min:"1ms" default:"5m" help:"Time after which a client that reads nothing is disconnected."`
	RetentionInterval time.Duration `min:"1ms" default:"5s" help:"Pause between two sweeps for expired events."`
	GroupExpiry       time.Duration `min:"0s" default:"0s" help:"Time after which an unused consumer group is deleted; 0: never."`

	DaprAppToken string `kong:"-"` // of the environment's APP_API_TOKEN

	InMemory bool             `kong:"-"` // keeps an embedded store in memory, for tests
	Version  string           `kong:"-"`
	Logger   *slog.Logger     `kong:"-"`
	Recent   *logging.Recent  `kong:"-"` // the last lines of Logger, which the control plane shows; nil: it shows none
	Hangups  <-chan os.Signal `kong:"-"` // each SIGHUP, which makes it read its files again; nil: none
	Exports  *otlp.Exports    `kong:"-"` // nil: nothing is sent
}

// ConfigError says that a setting is wrong.
type ConfigError = setting.Error

// Validate reports every setting that is wrong, or that does not go with another.
func (c Config) Validate() error {
	errs := []error{setting.CheckStore(c.Store)}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.ControlPlane != "" && !strings.HasPrefix(c.ControlPlane, "unix:/") {
		if host, port, err := net.SplitHostPort(c.ControlPlane); err != nil || host == "" || port == "" {
			bad("control-plane: %q must be host:port or unix:/path", c.ControlPlane)
		}
	}
	if c.DataDir == "" {
		bad("data-dir: must not be empty")
	}
	switch {
	case c.NodeID == "":
		bad("node-id: must not be empty")
	case c.NodeID == "." || c.NodeID == "..":
		bad("node-id: %q has a special meaning in URL paths", c.NodeID)
	case !isName(c.NodeID):
		bad("node-id: %q begins or ends with a space, or has characters that cannot be printed", c.NodeID)
	}
	for _, l := range c.listeners() {
		if err := listen.Check(l.addr); err != nil {
			bad("%s: %w", l.name, err)
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
	for _, p := range c.Peers {
		if !isPeerAddress(p) {
			bad("peers: %q must be host:port or unix:/path", p)
		}
	}
	errs = append(errs, c.validateDapr()...)
	errs = append(errs, c.validateCaptures()...)
	errs = append(errs, c.validateBounds()...)
	if err := errors.Join(errs...); err != nil {
		return &ConfigError{Err: err}
	}
	return nil
}

// checkReach checks what other machines can reach, and what is sent to them, by the file of
// AuthConfig.
func (c Config) checkReach(a *access.Access) error {
	var errs []error
	for _, l := range c.listeners() {
		errs = append(errs, a.CheckListener(l.name, l.addr, c.Insecure))
	}
	if toControlPlane := a.ControlPlane(); c.ControlPlane != "" {
		errs = append(errs, toControlPlane.CheckDial("control-plane", c.ControlPlane, "control_plane", c.Insecure))
	} else if toControlPlane != (access.ClientConfig{}) {
		errs = append(errs, errors.New("control-plane: is not set, and --auth-config has a section control_plane: set it, or remove the section"))
	}
	toPeers := a.Peers()
	for _, p := range c.Peers {
		errs = append(errs, toPeers.CheckDial("peers", p, "peers", c.Insecure))
	}
	// Without peers of its own a sidecar may be one of another's, which shows the token.
	if !c.hasPeers() && toPeers.ForTLS() != (access.ClientConfig{}) {
		errs = append(errs, errors.New("peers: are missing, and so is a control plane, and --auth-config has a section peers: "+
			"set one of them, or remove the section"))
	}
	if len(c.Peers) > 0 && toPeers.TokenFile == "" && !c.Insecure && !listen.IsLoopback(c.ReplayListen) {
		errs = append(errs, fmt.Errorf("replay-listen: %s can be reached from other machines, and --auth-config has no peers.token_file "+
			"by which those of --peers are known; give one, listen on a loopback address, or give --insecure", c.ReplayListen))
	}
	return errors.Join(errs...)
}

// hasPeers reports whether there may be other sidecars.
func (c Config) hasPeers() bool { return len(c.Peers) > 0 || c.ControlPlane != "" }

// listener is one of the settings that name an address to listen on.
type listener struct{ name, addr string }

func (c Config) listeners() []listener {
	all := []listener{{"listen", c.Listen}, {"replay-listen", c.ReplayListen}, {"ops-listen", c.OpsListen}}
	if c.DaprGRPCListen != "" {
		all = append(all, listener{"dapr-grpc-listen", c.DaprGRPCListen})
	}
	return all
}

// isName reports whether a text can name a sidecar to people and in headers, which lose surrounding
// spaces.
func isName(text string) bool {
	return utf8.ValidString(text) && text == strings.TrimSpace(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// validateBounds checks what the bounds in the tags leave open.
func (c Config) validateBounds() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, o := range c.Outboxes {
		if url, collection, _ := strings.Cut(o, "#"); !setting.IsMongoDB(url) || collection == "" {
			bad("outbox: must be a MongoDB connection string, '#' and the name of a collection, like mongodb://host/app#outbox")
		}
	}
	limits, err := c.eventLimits()
	if err != nil {
		return append(errs, err)
	}
	if limits.PayloadBytes > limits.FrameBytes {
		bad("limits: a payload of %d bytes does not fit into a frame of %d: raise frame, or lower payload",
			limits.PayloadBytes, limits.FrameBytes)
	}
	if most := int64(max(limits.FrameBytes, limits.BatchBytes)); c.MaxBufferedBytes < 2*most {
		bad("max-buffered-bytes: %d is too little: at least twice the largest frame or batch of --limits (%d bytes)", c.MaxBufferedBytes, most)
	}
	if !setting.IsMongoDB(c.Store) {
		return errs
	}
	if most := document.MaxPayload(limits); most == 0 {
		bad("limits: header-bytes, headers and key together leave no room for a payload in a document of MongoDB, which holds %d bytes",
			document.MaxBytes)
	} else if limits.PayloadBytes > most {
		bad("limits: a payload of %d bytes does not fit into a document of MongoDB beside headers, key and tags; "+
			"with the other limits as they are, at most %d do", limits.PayloadBytes, most)
	}
	return errs
}

// limits are the limits of events of valid settings.
func (c Config) limits() wire.Limits {
	limits, _ := c.eventLimits() // Validate has checked them
	return limits
}

// eventLimits are those of Limits, and the defaults.
func (c Config) eventLimits() (wire.Limits, error) {
	limits := wire.DefaultLimits()
	byName := map[string]*int{
		"payload": &limits.PayloadBytes, "headers": &limits.HeaderCount, "header-bytes": &limits.HeaderBytes, "key": &limits.KeyBytes,
		"batch": &limits.BatchEvents, "batch-bytes": &limits.BatchBytes, "frame": &limits.FrameBytes, "json-depth": &limits.JSONDepth,
	}
	for name, n := range c.Limits {
		limit := byName[name]
		switch {
		case limit == nil:
			return limits, fmt.Errorf("limits: there is no limit %q%s", name, nearest.Known(name, slices.Sorted(maps.Keys(byName))))
		case n < 1:
			return limits, fmt.Errorf("limits: %s must be at least 1, not %d", name, n)
		}
		*limit = n
	}
	return limits, nil
}

// shareOf is how many of the topics or groups of a store one identity may create.
func shareOf(most int) int { return max(1, most/10) }

// LowWater is a number of bytes of the disk that have to be free. Auto, LowWaterAuto, is a
// twentieth of the disk: 64 MiB at least, 1 GiB at the most, and no more than half of it.
type LowWater int64

// LowWaterAuto is LowWater's auto.
const LowWaterAuto LowWater = pebblelog.LowWaterAuto

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *LowWater) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*w = LowWaterAuto
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("must be auto, or a number of bytes of at least 0, not %q", text)
	}
	*w = LowWater(n)
	return nil
}
