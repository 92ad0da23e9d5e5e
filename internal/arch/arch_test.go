// Package arch holds the directions in which Sluice's packages may import each other and the few
// dependencies that are met in one place only. It has nothing but this test, and knows the packages
// by their paths alone.
//
// The rules are about what programs are made of; a test may import what it needs. The imports are
// read from the source instead of from the go tool: they are then the same on every platform, and
// go test knows what its cached result depends on.
package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

const module = "github.com/sluice-bus/sluice"

const (
	pebble     = "github.com/cockroachdb/pebble/..."
	websocket  = "github.com/coder/websocket/..."
	kong       = "github.com/alecthomas/kong/..."
	mongo      = "go.mongodb.org/mongo-driver/..."
	bbolt      = "go.etcd.io/bbolt/..."
	xds        = "github.com/envoyproxy/..."
	grpc       = "google.golang.org/grpc/..."
	otlpProto  = "go.opentelemetry.io/proto/otlp/..."
	jsonschema = "github.com/santhosh-tekuri/jsonschema/..."
	cel        = "cel.dev/cel-go/..."
	everything = "..."
	// foreign stands for all but the standard library, this module's own packages included.
	foreign = "foreign"
)

// A rule says that the packages in from, but not those in except, import nothing of to, but what is
// in allow. Packages are patterns as the go tool has them, ours without the module's path.
type rule struct {
	name                    string
	from, except, to, allow []string
	// caught is an import, from and to, that the rule must refuse: it proves that the patterns say
	// what they mean.
	caught [2]string
}

var rules = []rule{
	{
		name:   "the wire contract needs the standard library only",
		from:   []string{"sdk/wire/..."},
		to:     []string{foreign},
		allow:  []string{"sdk/wire/..."},
		caught: [2]string{"sdk/wire", "github.com/google/uuid"},
	},
	{
		name:   "the contract's types do not know how they are written",
		from:   []string{"sdk/wire"},
		to:     []string{"sdk/..."},
		caught: [2]string{"sdk/wire", "sdk/wire/codec"},
	},
	{
		name:   "clients do not know the servers",
		from:   []string{"sdk/..."},
		to:     []string{"sidecar/...", "controlplane/..."},
		caught: [2]string{"sdk", "sidecar"},
	},
	{
		name:   "what applications import needs nothing of the programs",
		from:   []string{"sdk/..."},
		except: []string{"sdk/cmd/..."},
		to:     []string{"internal/..."},
		caught: [2]string{"sdk", "internal/pause"},
	},
	{
		name:   "administration and options do not know the client",
		from:   []string{"sdk/admin", "sdk/option", "sdk/internal/..."},
		to:     []string{"sdk/..."},
		allow:  []string{"sdk/wire/...", "sdk/internal/..."},
		caught: [2]string{"sdk/admin", "sdk"},
	},
	{
		name:   "MongoDB's driver is met in one module of the SDK",
		from:   []string{"sdk/..."},
		except: []string{"sdk/mongo/..."},
		to:     []string{mongo},
		caught: [2]string{"sdk/wire", "go.mongodb.org/mongo-driver/v2/bson"},
	},
	{
		name:   "the sidecar does not know the control plane",
		from:   []string{"sidecar/..."},
		to:     []string{"controlplane/..."},
		caught: [2]string{"sidecar/internal/policyfile", "controlplane/internal/store"},
	},
	{
		name:   "the control plane does not know the sidecar",
		from:   []string{"controlplane/..."},
		to:     []string{"sidecar/..."},
		caught: [2]string{"controlplane", "sidecar"},
	},
	{
		name:   "what both of them say is made of policies alone",
		from:   []string{"internal/policypb"},
		to:     []string{"internal/..."},
		allow:  []string{"internal/policy"},
		caught: [2]string{"internal/policypb", "internal/schema"},
	},
	{
		name:   "applications' packages know no policies",
		from:   []string{"sdk/..."},
		except: []string{"sdk/cmd/..."},
		to:     []string{"internal/policy", "controlplane/..."},
		caught: [2]string{"sdk", "internal/policy"},
	},
	{
		name:   "the bench sees a sidecar from outside",
		from:   []string{"bench/..."},
		to:     []string{"sidecar/...", "controlplane/..."},
		caught: [2]string{"bench/cmd/sluice-bench", "sidecar"},
	},
	{
		name:   "what all programs share knows none of them, except for the wire contract",
		from:   []string{"internal/..."},
		to:     []string{"sidecar/...", "controlplane/...", "sdk/...", "bench/..."},
		allow:  []string{"sdk/wire/..."},
		caught: [2]string{"internal/program", "sdk"},
	},
	{
		name:   "programs need nothing that only tests need",
		from:   []string{everything},
		except: []string{"test/...", "examples/...", "sidecar/internal/gateway/gatewaytest"},
		to:     []string{"test/..."},
		caught: [2]string{"sidecar", "test/faultproxy"},
	},
	{
		name:   "what tests need knows the programs from outside",
		from:   []string{"test/..."},
		except: []string{"test/sluicetest"},
		to:     []string{"sidecar/...", "controlplane/...", "bench/..."},
		caught: [2]string{"test/testkit", "sidecar"},
	},
	{
		name:   "limits and the log's interface are leaves",
		from:   []string{"sidecar/internal/limit", "sidecar/internal/eventlog"},
		to:     []string{"sidecar/..."},
		caught: [2]string{"sidecar/internal/limit", "sidecar/internal/eventlog"},
	},
	{
		name:   "the embedded log knows the log's interface alone",
		from:   []string{"sidecar/internal/eventlog/pebblelog/..."},
		to:     []string{"sidecar/..."},
		allow:  []string{"sidecar/internal/eventlog", "sidecar/internal/eventlog/pebblelog/..."},
		caught: [2]string{"sidecar/internal/eventlog/pebblelog", "sidecar/internal/limit"},
	},
	{
		name:   "the log in MongoDB knows the log's interface alone",
		from:   []string{"sidecar/internal/eventlog/mongolog/..."},
		to:     []string{"sidecar/..."},
		allow:  []string{"sidecar/internal/eventlog", "sidecar/internal/eventlog/mongolog/..."},
		caught: [2]string{"sidecar/internal/eventlog/mongolog", "sidecar/internal/eventlog/pebblelog"},
	},
	{
		name:   "in the log in MongoDB the core and the documents are leaves",
		from:   []string{"sidecar/internal/eventlog/mongolog/core", "sidecar/internal/eventlog/mongolog/document"},
		to:     []string{"sidecar/internal/eventlog/mongolog/..."},
		allow:  []string{"sidecar/internal/eventlog/mongolog/core", "sidecar/internal/eventlog/mongolog/document"},
		caught: [2]string{"sidecar/internal/eventlog/mongolog/core", "sidecar/internal/eventlog/mongolog/events"},
	},
	{
		name: "in the log in MongoDB events, times, topics and heads serve those who append, read and remove",
		from: []string{"sidecar/internal/eventlog/mongolog/events", "sidecar/internal/eventlog/mongolog/topics",
			"sidecar/internal/eventlog/mongolog/times", "sidecar/internal/eventlog/mongolog/heads"},
		to: []string{"sidecar/internal/eventlog/mongolog/..."},
		allow: []string{"sidecar/internal/eventlog/mongolog/core", "sidecar/internal/eventlog/mongolog/document",
			"sidecar/internal/eventlog/mongolog/events", "sidecar/internal/eventlog/mongolog/times", "sidecar/internal/eventlog/mongolog/topics"},
		caught: [2]string{"sidecar/internal/eventlog/mongolog/topics", "sidecar/internal/eventlog/mongolog/heads"},
	},
	{
		name: "in the log in MongoDB groups, nodes and signals know nothing of events",
		from: []string{"sidecar/internal/eventlog/mongolog/epochs", "sidecar/internal/eventlog/mongolog/nodes",
			"sidecar/internal/eventlog/mongolog/signals"},
		to: []string{"sidecar/internal/eventlog/mongolog/..."},
		allow: []string{"sidecar/internal/eventlog/mongolog/core", "sidecar/internal/eventlog/mongolog/document",
			"sidecar/internal/eventlog/mongolog/topics"},
		caught: [2]string{"sidecar/internal/eventlog/mongolog/epochs", "sidecar/internal/eventlog/mongolog/reads"},
	},
	{
		name: "in the log in MongoDB who appends and who reads do not know each other",
		from: []string{"sidecar/internal/eventlog/mongolog/appends", "sidecar/internal/eventlog/mongolog/reads"},
		to:   []string{"sidecar/internal/eventlog/mongolog/..."},
		allow: []string{"sidecar/internal/eventlog/mongolog/core", "sidecar/internal/eventlog/mongolog/document",
			"sidecar/internal/eventlog/mongolog/events", "sidecar/internal/eventlog/mongolog/times",
			"sidecar/internal/eventlog/mongolog/topics", "sidecar/internal/eventlog/mongolog/heads"},
		caught: [2]string{"sidecar/internal/eventlog/mongolog/reads", "sidecar/internal/eventlog/mongolog/appends"},
	},
	{
		name: "who uses a log does not know which one it is",
		from: []string{"sidecar/internal/..."},
		except: []string{"sidecar/internal/eventlog/pebblelog/...", "sidecar/internal/eventlog/mongolog/...", "sidecar/internal/store/embedded",
			"sidecar/internal/store/shared", "sidecar/internal/gateway/gatewaytest"},
		to:     []string{"sidecar/internal/eventlog/pebblelog/...", "sidecar/internal/eventlog/mongolog/..."},
		caught: [2]string{"sidecar/internal/replay", "sidecar/internal/eventlog/mongolog"},
	},
	{
		name:   "who uses a store does not know which one it is",
		from:   []string{"sidecar/internal/..."},
		to:     []string{"sidecar/internal/store/embedded", "sidecar/internal/store/shared"},
		caught: [2]string{"sidecar/internal/ops", "sidecar/internal/store/shared"},
	},
	{
		name:   "the order of stopping does not know what stops",
		from:   []string{"sidecar/internal/lifecycle"},
		to:     []string{"sidecar/...", "internal/...", "sdk/..."},
		caught: [2]string{"sidecar/internal/lifecycle", "sidecar/internal/group"},
	},
	{
		name:   "the federation knows what a replay asks for and what an event is, and nothing else of the sidecar",
		from:   []string{"sidecar/internal/federation"},
		to:     []string{"sidecar/..."},
		allow:  []string{"sidecar/internal/replay", "sidecar/internal/eventlog"},
		caught: [2]string{"sidecar/internal/federation", "sidecar/internal/spool"},
	},
	{
		name:   "what is asked for does not know who answers for the fleet",
		from:   []string{"sidecar/internal/..."},
		to:     []string{"sidecar/internal/federation"},
		caught: [2]string{"sidecar/internal/replay", "sidecar/internal/federation"},
	},
	{
		name:   "the policies' history does not know what a policy says, nor who asks",
		from:   []string{"controlplane/internal/store/..."},
		to:     []string{"controlplane/...", "internal/policy"},
		allow:  []string{"controlplane/internal/store/..."},
		caught: [2]string{"controlplane/internal/store/boltstore", "controlplane/internal/catalog"},
	},
	{
		name:   "who uses the policies' history does not know where it is",
		from:   []string{"controlplane/internal/..."},
		except: []string{"controlplane/internal/store/..."},
		to:     []string{"controlplane/internal/store/boltstore", "controlplane/internal/store/mongostore"},
		caught: [2]string{"controlplane/internal/catalog", "controlplane/internal/store/boltstore"},
	},
	{
		name:   "bbolt is met in the embedded policy store",
		from:   []string{everything},
		except: []string{"controlplane/internal/store/boltstore"},
		to:     []string{bbolt},
		caught: [2]string{"controlplane", "go.etcd.io/bbolt"},
	},
	{
		name: "xDS is met where it is served and where it is asked for",
		from: []string{everything},
		except: []string{"controlplane/internal/xds", "controlplane/internal/quota", "sidecar/internal/xds/...", "sidecar/internal/control",
			"sidecar/internal/quota"},
		to:     []string{xds},
		caught: [2]string{"sidecar", "github.com/envoyproxy/go-control-plane/pkg/cache/v3"},
	},
	{
		name: "gRPC is met there, and where its connections and servers are made",
		from: []string{everything},
		except: []string{"controlplane", "controlplane/internal/xds", "controlplane/internal/quota", "controlplane/internal/topics",
			"controlplane/internal/health", "internal/access", "internal/grpclogs", "internal/health", "internal/policypb",
			"internal/tunnel/...", "sidecar", "sidecar/internal/xds/...", "sidecar/internal/control", "sidecar/internal/quota",
			"sidecar/internal/topiclist", "sidecar/internal/health", "internal/daprpb", "sidecar/internal/daprapp",
			"sidecar/internal/daprgrpc", "test/otlptest"},
		to:     []string{grpc},
		caught: [2]string{"controlplane/internal/rest", "google.golang.org/grpc"},
	},
	{
		name:   "OpenTelemetry's exporters are met where the environment chooses among them",
		from:   []string{everything},
		except: []string{"internal/otlp"},
		to: []string{"go.opentelemetry.io/otel/exporters/otlp/...", "go.opentelemetry.io/otel/exporters/stdout/...",
			"go.opentelemetry.io/otel/sdk/log/...", "go.opentelemetry.io/contrib/..."},
		caught: [2]string{"sidecar", "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"},
	},
	{
		name:   "OTLP's own messages are met in the tests' receiver",
		from:   []string{everything},
		except: []string{"test/otlptest"},
		to:     []string{otlpProto},
		caught: [2]string{"internal/otlp", "go.opentelemetry.io/proto/otlp/trace/v1"},
	},
	{
		name: "MongoDB's driver is met in the log, the outbox, captures, the policy store, the bench's floor, and the tests' servers",
		from: []string{everything},
		except: []string{"sidecar/internal/eventlog/mongolog/...", "sidecar/internal/capture", "sidecar/internal/outbox",
			"controlplane/internal/store/mongostore", "bench/scenarios",
			"test/mongotest", "test/mongomodel/...", "internal/mongowatch", "examples/go-exactly-once", "examples/mongodb-view", "examples/capture",
			"examples/outbox",
			"sdk/mongo/..."},
		to:     []string{mongo},
		caught: [2]string{"sidecar", "go.mongodb.org/mongo-driver/v2/mongo"},
	},
	{
		name:   "the model of MongoDB is for tests alone",
		from:   []string{everything},
		except: []string{"test/mongomodel/..."},
		to:     []string{"test/mongomodel/..."},
		caught: [2]string{"sidecar/internal/eventlog/mongolog", "test/mongomodel/store"},
	},
	{
		name:   "JSON Schema's library is met in the package that bounds it, and where tests hold servers to their descriptions",
		from:   []string{everything},
		except: []string{"internal/schema", "test/openapitest"},
		to:     []string{jsonschema},
		caught: [2]string{"internal/policy", "github.com/santhosh-tekuri/jsonschema/v6"},
	},
	{
		name:   "CEL is met where rules of Dapr's subscriptions are",
		from:   []string{everything},
		except: []string{"sidecar/internal/daprapp"},
		to:     []string{cel},
		caught: [2]string{"sidecar/internal/group", "cel.dev/cel-go/cel"},
	},
	{
		name:   "who delivers to endpoints knows no protocol",
		from:   []string{"sidecar/internal/delivery"},
		to:     []string{"net/http", grpc, "sidecar/internal/daprapp", "sidecar/internal/daprgrpc", "sidecar/internal/push"},
		caught: [2]string{"sidecar/internal/delivery", "net/http"},
	},
	{
		name:   "spans are made in one place",
		from:   []string{"sidecar/..."},
		except: []string{"sidecar/internal/tracing/..."},
		to:     []string{"go.opentelemetry.io/otel/trace", "go.opentelemetry.io/otel/sdk/trace"},
		caught: [2]string{"sidecar/internal/group", "go.opentelemetry.io/otel/trace"},
	},
	{
		name:   "dead letters and start positions are found without a group",
		from:   []string{"sidecar/internal/group/deadletter", "sidecar/internal/group/position"},
		to:     []string{"sidecar/internal/group"},
		caught: [2]string{"sidecar/internal/group/deadletter", "sidecar/internal/group"},
	},
	{
		name: "who gets which event, and who has which partition, is decided without calling anything",
		from: []string{"sidecar/internal/group/dispatch", "sidecar/internal/group/ownership"},
		to:   []string{"sidecar/..."},
		allow: []string{
			"sidecar/internal/eventlog", "sidecar/internal/limit", "sidecar/internal/reader",
			"sidecar/internal/roster", "sidecar/internal/telemetry", "sidecar/internal/tracing",
		},
		caught: [2]string{"sidecar/internal/group/dispatch", "sidecar/internal/group"},
	},
	{
		name:   "Pebble is met in the embedded log, and where tests start a gateway on it",
		from:   []string{everything},
		except: []string{"sidecar/internal/eventlog/pebblelog/...", "sidecar/internal/gateway/gatewaytest"},
		to:     []string{pebble},
		caught: [2]string{"sidecar", "github.com/cockroachdb/pebble/v2"},
	},
	{
		name:   "what clients reach is assembled in the gateway: its parts do not know it, nor each other",
		from:   []string{"sidecar/internal/ws", "sidecar/internal/consume", "sidecar/internal/manage"},
		to:     []string{"sidecar/internal/gateway/...", "sidecar/internal/ws", "sidecar/internal/consume", "sidecar/internal/manage"},
		caught: [2]string{"sidecar/internal/ws", "sidecar/internal/consume"},
	},
	{
		name: "events are made of what clients send without knowing how they are consumed or stored",
		from: []string{"sidecar/internal/ingest"},
		to: []string{"sidecar/internal/gateway/...", "sidecar/internal/ws", "sidecar/internal/consume", "sidecar/internal/manage",
			"sidecar/internal/group/...", "sidecar/internal/eventlog/...", "sidecar/internal/writer"},
		caught: [2]string{"sidecar/internal/ingest", "sidecar/internal/eventlog"},
	},
	{
		name: "what the parts of the gateway share knows none of them",
		from: []string{"sidecar/internal/session", "sidecar/internal/receive", "sidecar/internal/sendbuffer", "sidecar/internal/refusal"},
		to: []string{"sidecar/internal/gateway/...", "sidecar/internal/ws", "sidecar/internal/consume", "sidecar/internal/manage",
			"sidecar/internal/ingest"},
		caught: [2]string{"sidecar/internal/session", "sidecar/internal/ws"},
	},
	{
		name:   "the WebSocket library is met in the sidecar's WebSockets, the tests' client and the SDK",
		from:   []string{everything},
		except: []string{"sidecar/internal/ws", "sidecar/internal/gateway/gatewaytest", "sdk"},
		to:     []string{websocket},
		caught: [2]string{"bench/load", "github.com/coder/websocket"},
	},
	{
		name:   "the flag library is met where settings are read",
		from:   []string{everything},
		except: []string{"internal/program", "sidecar/cmd/...", "controlplane/cmd/...", "sdk/cmd/...", "bench/cmd/..."},
		to:     []string{kong},
		caught: [2]string{"sidecar", "github.com/alecthomas/kong"},
	},
}

// refuses tells whether the rule forbids the import. Both paths are full ones.
func (r rule) refuses(from, to string) bool {
	return matchesAny(from, r.from) && !matchesAny(from, r.except) && matchesAny(to, r.to) && !matchesAny(to, r.allow)
}

func matchesAny(importPath string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		switch {
		case pattern == everything:
			return true
		case pattern == foreign:
			return hasDomain(importPath)
		}
		tree, isTree := strings.CutSuffix(full(pattern), "/...")
		return importPath == tree || isTree && strings.HasPrefix(importPath, tree+"/")
	})
}

// full returns the import path, or pattern of them, that is written without the module's path where
// it is ours.
func full(short string) string {
	if hasDomain(short) {
		return short
	}
	return path.Join(module, short)
}

// hasDomain tells the packages of modules from those of the standard library.
func hasDomain(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return strings.Contains(first, ".")
}

func TestDirections(t *testing.T) {
	imports := readImports(t, os.DirFS("../.."))
	if len(imports[full("internal/program")]) == 0 {
		t.Fatal("the imports of internal/program were not found: is the module somewhere else?")
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, from := range slices.Sorted(maps.Keys(imports)) {
				for to := range imports[from] {
					if r.refuses(from, to) {
						t.Errorf("%s imports %s", from, to)
					}
				}
			}
		})
	}
}

func TestRulesCatchWhatTheyAreFor(t *testing.T) {
	for _, r := range rules {
		from, to := full(r.caught[0]), full(r.caught[1])
		if !r.refuses(from, to) {
			t.Errorf("%q lets %s import %s", r.name, from, to)
		}
		if r.refuses(from, "net/http") {
			t.Errorf("%q refuses the standard library", r.name)
		}
	}
}

// readImports returns what each package of the workspace at root imports, tests aside.
func readImports(t *testing.T, root fs.FS) map[string]map[string]bool {
	t.Helper()
	imports := map[string]map[string]bool{}
	folders := workspace(t, root)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipFolder(root, folders, name)
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		from := path.Join(module, path.Dir(name))
		if imports[from] == nil {
			imports[from] = map[string]bool{}
		}
		for _, spec := range file.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports[from][to] = true
		}
		return nil
	})
	require.NoError(t, err)
	return imports
}

// skipFolder leaves out what the go tool leaves out: hidden folders, test data, and modules that
// are not of the workspace.
func skipFolder(root fs.FS, workspace []string, name string) error {
	if slices.Contains(workspace, name) {
		return nil
	}
	base := path.Base(name)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" {
		return fs.SkipDir
	}
	if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}
