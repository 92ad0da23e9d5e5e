// Command sluice-sidecar is the sidecar: settings, signals, the ready line and the exit status
// around package sidecar.
package main

import (
	"context"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/gcpace"
	"github.com/sluice-bus/sluice/internal/otlp"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sidecar"
)

// settings are the flags; each is also an environment variable and a key of the configuration file.
type settings struct {
	Listen       string `default:"127.0.0.1:7070" placeholder:"ADDR" help:"App API, HTTP and WebSocket: host:port (port 0 picks one) or unix:/path."`
	ReplayListen string `default:"127.0.0.1:8083" placeholder:"ADDR" help:"Replay and export API."`
	OpsListen    string `default:"127.0.0.1:7071" placeholder:"ADDR" help:"Health, metrics and status."`

	DataDir   string `default:"${data_dir}" placeholder:"DIR" help:"Folder of the embedded log, or of the spool if the log is in MongoDB."`
	Store     string `secret:"--store-file, or SLUICE_STORE" default:"embedded:" placeholder:"URL" help:"Event log: embedded: keeps it in --data-dir; mongodb://… or mongodb+srv://… shares the database that it names with other sidecars."`
	StoreFile string `placeholder:"FILE" help:"Read the URL of --store from this file: for URLs with a password."`
	NodeID    string `placeholder:"NAME" help:"Name of this sidecar. Default: the host's name."`

	Lease         time.Duration `default:"10s" placeholder:"D" help:"Shared store: without a sign of life for this long, a sidecar's partitions go to others."`
	StoreTimeout  time.Duration `default:"5s" placeholder:"D" help:"Shared store: longest that one operation is tried before the store counts as away."`
	StoreLinger   time.Duration `default:"1ms" placeholder:"D" help:"Shared store: how long after a batch of a topic the next one is waited for, at most 1s; 0 sends it at once, for more commands and less latency."`
	SpoolMaxBytes int64         `default:"4294967296" placeholder:"N" help:"Shared store: most bytes kept in --data-dir while it is away, for all topics together."`
	DiskLowWater  string        `default:"auto" placeholder:"N" help:"Free bytes of the disk of --data-dir below which nothing is published to it; auto: 5 % of the disk, 64 MiB at least and 1 GiB at most; 0: none."`
	Outbox        []string      `secret:"outbox in --config, or SLUICE_OUTBOX" sep:"none" placeholder:"URL#COLLECTION" help:"Publish the documents that applications insert into this MongoDB collection; may be given several times."`

	Capture       []string `secret:"capture in --config, or SLUICE_CAPTURE" sep:"none" placeholder:"DB.COLLECTION" help:"Publish the changes of this MongoDB collection of --store, or of a URL#COLLECTION of another one, to the topic DB.COLLECTION, or to the one named by =TOPIC behind it; may be given several times."`
	CaptureReread string   `placeholder:"WORD" help:"Publish all documents of the captured collections once more, for each new word: at the first start, and after a gap."`

	DaprApp         string `placeholder:"URL" help:"Give an application that was written for Dapr the events of its subscriptions: http://127.0.0.1:PORT."`
	DaprAppIdentity string `name:"dapr-app-identity" placeholder:"NAME" help:"Entry of --auth-config that says which topics, and with which groups, that application may subscribe to. Default: all."`
	DaprAppID       string `name:"dapr-app-id" placeholder:"NAME" help:"Consumer group of that application. Default: the node's name."`

	Policies              string `placeholder:"FILE" help:"YAML file with policies; a change takes effect within 3 s. With --control-plane: the policies until its first answer."`
	ControlPlane          string `placeholder:"HOST:PORT" help:"Control plane to get policies from; its last policies are kept in --data-dir."`
	ControlPlaneTLS       bool   `name:"control-plane-tls" help:"Use TLS there, with the authorities that the system trusts."`
	ControlPlaneCA        string `name:"control-plane-ca" placeholder:"FILE" help:"Use TLS there, with this authority's certificate."`
	ControlPlaneCert      string `placeholder:"FILE" help:"Certificate that this sidecar shows there."`
	ControlPlaneKey       string `placeholder:"FILE" help:"Its key."`
	ControlPlaneTokenFile string `placeholder:"FILE" help:"File with the token that this sidecar shows there."`
	ReplayAdvertise       string `placeholder:"ADDR" help:"Where other sidecars reach the replay API. Default: the address bound."`

	Peers         []string `placeholder:"HOST:PORT" help:"Replay APIs of other sidecars (host:port or unix:/path), for scope=fleet; the control plane names its sidecars by itself."`
	PeerTokenFile string   `placeholder:"FILE" help:"File with one or two tokens, a line each, that the sidecars of --peers share: they send the first, and accept both. Sidecars of a control plane need none."`
	PeerTLS       bool     `name:"peer-tls" help:"Use TLS to other sidecars, with the authorities that the system trusts."`
	PeerCA        string   `name:"peer-ca" placeholder:"FILE" help:"Use TLS to other sidecars, with this authority's certificate."`
	PeerCert      string   `placeholder:"FILE" help:"Certificate that this sidecar shows to others; uses TLS."`
	PeerKey       string   `placeholder:"FILE" help:"Its key."`

	AuthConfig     string   `placeholder:"FILE" help:"YAML file with tokens, their rights, and TLS certificates; needed to listen beyond loopback."`
	AllowedOrigins []string `placeholder:"ORIGIN" help:"Web origins (https://host[:port]) whose pages may use the listeners."`
	Insecure       bool     `help:"Listen beyond loopback without --auth-config: everyone who reaches the port may do everything. With it: listen there, and use other machines, without TLS, for networks that encrypt by themselves."`

	AuditTopics []string `placeholder:"TOPIC" help:"Topics, or prefixes followed by *, whose accesses are logged: publishing, consuming, replaying, seeking and deleting, with identity and address. Default: none."`
	AuditFile   string   `placeholder:"FILE" help:"Append the lines of --audit-topics to this file, as JSON. Default: standard error, with the other lines."`

	MaxPayloadBytes int `default:"1048576" placeholder:"N" help:"Largest payload of an event."`
	MaxHeaders      int `default:"64" placeholder:"N" help:"Most headers of an event."`
	MaxHeaderBytes  int `default:"16384" placeholder:"N" help:"Most bytes of an event's headers, names and values."`
	MaxKeyBytes     int `default:"512" placeholder:"N" help:"Longest key."`
	MaxBatchEvents  int `default:"1000" placeholder:"N" help:"Most events of a batch."`
	MaxBatchBytes   int `default:"8388608" placeholder:"N" help:"Largest batch."`
	MaxFrameBytes   int `default:"16777216" placeholder:"N" help:"Largest WebSocket message."`
	MaxJSONDepth    int `name:"max-json-depth" default:"512" placeholder:"N" help:"Deepest nesting of a payload."`
	MaxTopics       int `default:"10000" placeholder:"N" help:"Most topics of the store; creating one more is refused."`
	MaxGroups       int `default:"10000" placeholder:"N" help:"Most consumer groups of the store; creating one more is refused."`
	MaxScheduled    int `default:"1000000" placeholder:"N" help:"Most scheduled events of a topic; one more is refused."`

	MaxTopicsPerIdentity int           `default:"1000" placeholder:"N" help:"Most topics that one identity may create; 0: any number."`
	MaxGroupsPerIdentity int           `default:"1000" placeholder:"N" help:"Most consumer groups that one identity may create; 0: any number."`
	GroupExpiry          time.Duration `default:"0" help:"Delete a consumer group that has settled no event and has had no member for as long; 0: never."`
	MaxTopicLabels       int           `default:"1000" placeholder:"N" help:"Most topics with metrics of their own; further ones share the label _other."`

	DrainTimeout      time.Duration `default:"15s" placeholder:"D" help:"Longest time that a graceful stop may take."`
	SlowClientTimeout time.Duration `default:"5m" placeholder:"D" help:"Disconnect a client that has read nothing for this long."`
	ReceiveTimeout    time.Duration `default:"1m" placeholder:"D" help:"Longest time that a WebSocket message or a request's body may take to arrive once it has begun."`
	MaxConnections    int           `default:"20000" placeholder:"N" help:"Most connections of each listener; further ones are refused as overloaded."`
	MaxBufferedBytes  int64         `default:"134217728" placeholder:"N" help:"Most memory of all connections together: for requests until they are answered, and for events until they are acked."`
	RetentionInterval time.Duration `default:"5s" placeholder:"D" help:"Pause between two sweeps for expired events."`
}

const examples = `  sluice-sidecar
      One sidecar with its log in the default folder.
  sluice-sidecar --data-dir /var/lib/sluice --policies policies.yaml
      Limits from a file, which may change while it runs.
  sluice-sidecar --control-plane 127.0.0.1:18000
      Limits from a control plane, tuned for all sidecars at once.
  sluice-sidecar --peers 10.0.0.2:8083,10.0.0.3:8083
      History of all of them from any of them, with scope=fleet.
  sluice-sidecar --store mongodb://db1,db2,db3/events?replicaSet=rs0
      One of many sidecars that share a log in MongoDB.
  sluice-sidecar migrate --store mongodb://db1/events --dry-run
      What an upgrade would change in the database.
  sluice-sidecar --listen unix:/run/sluice.sock
      The app API on a socket that only this machine can reach.
  curl -d '{"hello":"world"}' http://127.0.0.1:7070/v1/topics/greetings/events
      Publish, once it is ready.`

func main() {
	var s settings
	program.Main(program.Spec{
		Name:        "sluice-sidecar",
		Description: "The sidecar beside an application: takes its events over HTTP and WebSocket, limits, deduplicates and stores them, and delivers them to consumer groups.",
		Examples:    examples,
		Settings:    &s,
		Commands:    []program.Spec{migrateSpec()},
		Run:         func(ctx context.Context, app *program.App) error { return run(ctx, app, &s) },
	})
}

func run(ctx context.Context, app *program.App, s *settings) error {
	cfg, err := s.config(app)
	if err != nil {
		return err
	}
	cfg.Exports, err = otlp.Open(ctx, otlp.Config{
		Service: app.Name, Version: app.Version, Instance: cfg.NodeID, Log: app.Logger, Console: app.Stderr,
	})
	if err != nil {
		return err
	}
	defer cfg.Exports.Close()
	cfg.Logger = cfg.Exports.Logger(app.Logger)
	sc, err := sidecar.New(ctx, cfg)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // a signal arrived before it had started
	case err != nil:
		return err
	}
	if os.Getenv("GOGC") == "" {
		defer paceCollector(sc)()
	}
	listen, replay, ops := sc.Addresses()
	ready := func() error {
		return program.Ready(app.Stdout,
			program.Field{Name: "listen", Value: listen},
			program.Field{Name: "replay", Value: replay},
			program.Field{Name: "ops", Value: ops})
	}
	return sc.Run(ctx, ready)
}

// paceCollector keeps the garbage collector's headroom free of the memory that the log keeps for
// good, until end is called.
func paceCollector(sc *sidecar.Sidecar) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var pacing sync.WaitGroup
	pacing.Go(func() { gcpace.Follow(ctx, sc.Held) })
	return func() {
		cancel()
		pacing.Wait()
	}
}

// lowWater reads --disk-low-water.
func lowWater(text string) (int64, error) {
	if text == "auto" {
		return sidecar.LowWaterAuto, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, program.Usagef("disk-low-water: %q must be auto, or a number of bytes of at least 0", text)
	}
	return n, nil
}

// config turns the settings into the sidecar's.
func (s *settings) config(app *program.App) (sidecar.Config, error) {
	cfg := sidecar.DefaultConfig()
	cfg.Listen, cfg.ReplayListen, cfg.OpsListen = s.Listen, s.ReplayListen, s.OpsListen
	var err error
	if cfg.Store, err = setting.StoreOf(s.Store, s.StoreFile); err != nil {
		return cfg, err
	}
	cfg.DataDir, cfg.NodeID = s.DataDir, s.NodeID
	cfg.Lease, cfg.StoreTimeout, cfg.StoreLinger, cfg.SpoolMaxBytes, cfg.Outboxes = s.Lease, s.StoreTimeout, s.StoreLinger, s.SpoolMaxBytes, s.Outbox
	cfg.Captures, cfg.CaptureReread = s.Capture, s.CaptureReread
	if cfg.DiskLowWater, err = lowWater(s.DiskLowWater); err != nil {
		return cfg, err
	}
	cfg.DaprApp, cfg.DaprAppID, cfg.DaprAppIdentity = s.DaprApp, s.DaprAppID, s.DaprAppIdentity
	cfg.ControlPlane, cfg.Policies, cfg.AuthConfig = s.ControlPlane, s.Policies, s.AuthConfig
	cfg.ControlAccess = access.ClientConfig{
		TLS: s.ControlPlaneTLS, CA: s.ControlPlaneCA, Cert: s.ControlPlaneCert, Key: s.ControlPlaneKey, TokenFile: s.ControlPlaneTokenFile,
	}
	cfg.ReplayAdvertise = s.ReplayAdvertise
	cfg.Peers, cfg.PeerTokenFile = s.Peers, s.PeerTokenFile
	cfg.PeerAccess = access.ClientConfig{TLS: s.PeerTLS, CA: s.PeerCA, Cert: s.PeerCert, Key: s.PeerKey}
	cfg.AllowedOrigins, cfg.Insecure = s.AllowedOrigins, s.Insecure
	cfg.AuditTopics, cfg.AuditFile = s.AuditTopics, s.AuditFile
	cfg.Limits.PayloadBytes, cfg.Limits.HeaderCount, cfg.Limits.HeaderBytes = s.MaxPayloadBytes, s.MaxHeaders, s.MaxHeaderBytes
	cfg.Limits.KeyBytes, cfg.Limits.BatchEvents, cfg.Limits.BatchBytes = s.MaxKeyBytes, s.MaxBatchEvents, s.MaxBatchBytes
	cfg.Limits.FrameBytes, cfg.Limits.JSONDepth = s.MaxFrameBytes, s.MaxJSONDepth
	cfg.MaxTopics, cfg.MaxGroups, cfg.MaxScheduled = s.MaxTopics, s.MaxGroups, s.MaxScheduled
	cfg.MaxTopicsEach, cfg.MaxGroupsEach, cfg.GroupExpiry = s.MaxTopicsPerIdentity, s.MaxGroupsPerIdentity, s.GroupExpiry
	cfg.MaxTopicLabels, cfg.DrainTimeout = s.MaxTopicLabels, s.DrainTimeout
	cfg.SlowClientTimeout, cfg.RetentionInterval = s.SlowClientTimeout, s.RetentionInterval
	cfg.ReceiveTimeout, cfg.MaxConnections, cfg.MaxBufferedBytes = s.ReceiveTimeout, s.MaxConnections, s.MaxBufferedBytes
	cfg.Version, cfg.Logger = app.Version, app.Logger
	if cfg.NodeID == "" {
		host, err := os.Hostname()
		if err != nil {
			return cfg, program.Usagef("node-id: the host has no name to take as default: %w", err)
		}
		cfg.NodeID = host
	}
	return cfg, nil
}
