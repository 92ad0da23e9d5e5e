// Package mongotest gives tests a server that speaks MongoDB's protocol: the one that MONGODB_URI names, else a FerretDB
// of their own that is built once and started on a free port of the loopback interface. It says on standard error which
// server the tests ran on and what that one cannot do, and knows nothing of what Sluice keeps there.
//
// No goroutine stays behind a server that runs, so tests that look for leaks find their own only.
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
)

// URIVariable names the environment variable with the connection string of the real server to test on.
const URIVariable = "MONGODB_URI"

// commandTimeout is how long the server may take to answer what this package asks it.
const commandTimeout = 30 * time.Second

// Server is a server as one test sees it.
type Server struct {
	t      testing.TB
	own    *process // nil: the real one
	shared bool
	info   Info
}

// Start starts a server for this test alone, which it may stop, kill and restart; it ends with the test. With
// MONGODB_URI it starts nothing and returns that server, which a test cannot stop.
func Start(t testing.TB) *Server {
	t.Helper()
	if os.Getenv(URIVariable) != "" {
		return newServer(t, nil, false)
	}
	bin, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{bin: bin, dir: t.TempDir()}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the end of the MongoDB server's log:\n%s", p.logTail())
		}
	})
	return newServer(t, p, false)
}

// Shared returns the one server that all tests of the process share: what MONGODB_URI names, else a FerretDB that is
// started for the first of them and ends with the test process, even if that is killed. Each test should work in a
// database of its own, see NewDatabase.
func Shared(t testing.TB) *Server {
	t.Helper()
	if os.Getenv(URIVariable) != "" {
		return newServer(t, nil, true)
	}
	p, err := sharedProcess()
	if err != nil {
		t.Fatal(err)
	}
	return newServer(t, p, true)
}

// The shared process is held here for as long as the test process lives: the end of its standard input tells it to end.
var sharedProcess = sync.OnceValues(func() (*process, error) {
	bin, err := Binary()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sluice-mongotest-")
	if err != nil {
		return nil, err
	}
	p := &process{bin: bin, dir: dir, args: []string{"--remove-data"}}
	if err := p.start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
})

func newServer(t testing.TB, own *process, shared bool) *Server {
	t.Helper()
	s := &Server{t: t, own: own, shared: shared}
	if err := s.inform(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Real tells whether this is the server of MONGODB_URI.
func (s *Server) Real() bool { return s.own == nil }

// URI is the connection string for a database.
func (s *Server) URI(database string) string {
	return withDatabase(s.base(), database)
}

// URIVia is the connection string for a database through a proxy at addr (host:port) in front of Addr. The driver
// then talks to this address alone, also where the server is a member of a replica set.
func (s *Server) URIVia(addr, database string) string {
	return withDatabase(withHost(s.base(), addr), database)
}

// Addr is the server's host:port, for a proxy. Of a real server with several hosts it is the first, and that one must be
// the primary; one of a mongodb+srv URI has none and fails the test.
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
	s.mustOwn("stopped")
	if err := s.own.stop(); err != nil {
		s.t.Fatal(err)
	}
}

// Kill ends the server at once, as kill -9 does, and waits until it has ended.
func (s *Server) Kill() {
	s.t.Helper()
	s.mustOwn("killed")
	s.own.kill()
}

// Restart starts the server again, on the same port with the same data, and returns once it serves. One that still runs
// is stopped first.
func (s *Server) Restart() {
	s.t.Helper()
	s.mustOwn("restarted")
	if err := s.own.stop(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.own.start(); err != nil {
		s.t.Fatal(err)
	}
}

// CanStop tells whether Stop, Kill and Restart are allowed: this server is neither a real nor a shared one.
func (s *Server) CanStop() bool { return s.own != nil && !s.shared }

func (s *Server) mustOwn(what string) {
	s.t.Helper()
	switch {
	case s.Real():
		s.t.Fatalf("the server of %s cannot be %s by a test", URIVariable, what)
	case s.shared:
		s.t.Fatalf("a shared server cannot be %s: other tests use it; take one with mongotest.Start", what)
	}
}

// NewDatabase returns the name of a database that nobody else uses. It is dropped at the end of the test where the server
// lives on.
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
	if closeErr := c.Disconnect(ctx); err == nil {
		err = closeErr
	}
	return err
}
