// Package mongotest gives tests a server that speaks MongoDB's protocol: the one that MONGODB_URI
// names, else the model of test/mongomodel as a process of their own on free ports of the
// loopback interface. It says on standard error which server the tests ran on.
//
// A running server has no goroutine in the test process, so tests that look for leaks find their
// own only.
package mongotest

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// URIVariable names the environment variable with the connection string of the real server to test
// on.
const URIVariable = "MONGODB_URI"

// commandTimeout is how long the server may take to answer this package.
const commandTimeout = 30 * time.Second

// quickly shortens the times of the model that a test would wait for.
var quickly = []string{"--election-timeout=2s", "--transaction-lifetime=5s", "--ttl-interval=1s", "--hello-wait=500ms"}

// Server is a server as one test sees it.
type Server struct {
	t      testing.TB
	own    *process // nil: the real one
	shared bool
	info   Info
}

// Start starts a replica set of one member for this test alone, which it may stop, kill and
// restart; it ends with the test. With MONGODB_URI it starts nothing and returns that server, which
// a test cannot stop.
func Start(t testing.TB) *Server {
	t.Helper()
	if os.Getenv(URIVariable) != "" {
		return newServer(t, nil, false)
	}
	return newServer(t, started(t, testkit.MongoModelProgram, append([]string{"--members=1"}, quickly...)...), false)
}

func started(t testing.TB, program *testkit.Program, args ...string) *process {
	t.Helper()
	p := &process{bin: program.Binary(t), dir: t.TempDir(), args: args}
	require.NoError(t, p.start())
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("the end of the MongoDB server's log:\n%s", p.logTail())
		}
	})
	return p
}

// Shared returns the one server that all tests of the process share: the server of MONGODB_URI,
// else a replica set of three members that is started for the first of them and ends with the test
// process, even if that is killed. Each test should work in a database of its own, see NewDatabase.
func Shared(t testing.TB) *Server {
	t.Helper()
	if os.Getenv(URIVariable) != "" {
		return newServer(t, nil, true)
	}
	p, err := sharedProcess()
	require.NoError(t, err)
	return newServer(t, p, true)
}

// The shared process is held here for as long as the test process lives: the end of its standard
// input tells it to end.
var sharedProcess = sync.OnceValues(func() (*process, error) {
	bin, err := testkit.MongoModelProgram.Build()
	if err != nil {
		return nil, err
	}
	p := &process{bin: bin, args: quickly}
	return p, p.start()
})

func newServer(t testing.TB, own *process, shared bool) *Server {
	t.Helper()
	s := &Server{t: t, own: own, shared: shared}
	if s.Real() { // which go test cannot see
		require.NoError(t, testkit.NeverCache())
	}
	require.NoError(t, s.inform())
	return s
}

// Real tells whether this is the server of MONGODB_URI.
func (s *Server) Real() bool { return s.own == nil }

// PID is the process of a server of Start's.
func (s *Server) PID() int { return s.own.cmd.Process.Pid }

// URI is the connection string for a database.
func (s *Server) URI(database string) string {
	return withDatabase(s.base(), database)
}

// URIVia is the connection string for a database through a proxy at addr (host:port) in front of
// Addr. The driver then talks to this address alone, also where the server is a member of a replica
// set.
func (s *Server) URIVia(addr, database string) string {
	return withDatabase(withHost(s.base(), addr), database)
}

// Addr is the server's host:port, for a proxy. For a real server with several hosts it is the first
// host, which must be the primary. A server of a mongodb+srv URI has no such address: the test then
// fails.
func (s *Server) Addr() string {
	s.t.Helper()
	c := splitURI(s.base())
	if c.scheme != "mongodb" {
		s.t.Fatalf("a test with a proxy needs a %s with mongodb://host:port, not %s://", URIVariable, c.scheme)
	}
	host, _, _ := strings.Cut(c.hosts, ",")
	if _, _, err := net.SplitHostPort(host); err != nil {
		host += ":27017"
	}
	return host
}

func (s *Server) base() string {
	if s.own == nil {
		return os.Getenv(URIVariable)
	}
	return s.own.uri
}

// Stop ends the server as an operator would and waits until it has ended.
func (s *Server) Stop() {
	s.t.Helper()
	s.order("kill 0") // which is the same to clients
}

// Kill ends the server at once, as kill -9 does, and waits until it has ended.
func (s *Server) Kill() {
	s.t.Helper()
	s.order("kill 0")
}

// Restart starts the server again, on the same port with the same data, and returns once it serves.
// One that still runs is stopped first.
func (s *Server) Restart() {
	s.t.Helper()
	s.order("kill 0")
	s.order("restart 0")
}

func (s *Server) order(what string) {
	s.t.Helper()
	switch {
	case s.Real():
		s.t.Fatalf("the server of %s cannot be told to %s by a test", URIVariable, what)
	case s.shared:
		s.t.Fatalf("a shared server cannot be told to %s: other tests use it; take one with mongotest.Start", what)
	}
	if err := s.own.order(what); err != nil {
		s.t.Fatal(err)
	}
}

// CanStop tells whether Stop, Kill and Restart are allowed: this server is neither a real nor a
// shared one.
func (s *Server) CanStop() bool { return s.own != nil && !s.shared }

// NewDatabase returns the name of a database that nobody else uses. If the server outlives the
// test, the database is dropped at the end of the test.
func (s *Server) NewDatabase(t testing.TB) string {
	t.Helper()
	name := "slu_" + strings.ToLower(rand.Text()[:12])
	if s.CanStop() {
		return name
	}
	t.Cleanup(func() {
		err := withClient(s.URI(name), func(ctx context.Context, c *mongo.Client) error {
			return c.Database(name).Drop(ctx)
		})
		if err != nil {
			t.Errorf("dropping the test's database %s: %v", name, err)
		}
	})
	return name
}

// withClient runs f with a client that exists only for it.
func withClient(uri string, f func(context.Context, *mongo.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	c, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	err = f(ctx, c)
	if closeErr := mongowatch.Disconnect(c, clock.System(), commandTimeout); err == nil {
		err = closeErr
	}
	return err
}
