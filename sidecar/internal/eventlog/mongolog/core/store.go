// Package core is the database under the shared log: its connections, the operations on it with
// their timeouts, causal sessions and retries, and the facts about the server that every part needs.
package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Config says where a store is and how it is used.
type Config struct {
	URL      string // a MongoDB connection string
	Database string // if the URL names none
	NodeID   string // the name of this client in MongoDB's own logs
	// Timeout bounds one operation, retries included.
	Timeout time.Duration
	// SeqTaken is how long the seq of a removed event stays taken.
	SeqTaken time.Duration
	Monitor  *event.CommandMonitor // may be nil
	Dialer   options.ContextDialer // nil: over the network
	Logger   *slog.Logger
	Clock    clock.Clock
}

// Facts about the store, which Prepare finds out.
type Facts struct {
	StoreID string
	Sharded bool // the server is a mongos
	// Unindexed says that the store lacks an index that only makes the log faster.
	Unindexed bool
}

// Store is one client of a database.
type Store struct {
	Config
	// Prepare checks the server and creates what is missing, before the first operation. The caller
	// of Connect sets it.
	Prepare func(context.Context) (Facts, error)

	DB *mongo.Database
	// Beats has connections of its own for the sidecars' beats, which must not wait behind appends.
	Beats *mongo.Client

	client   *mongo.Client
	topology topology
	health   atomic.Pointer[error] // the last operation's error; nil: none
	causal   causality
	clock    serverClock
	setup    setup

	// lasting ends with Close, and with it the goroutines that run until then. Operations under way
	// end by themselves, within Timeout.
	lasting    context.Context
	endLasting context.CancelFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// Connect makes a store. It does not wait for the server: every operation wraps
// eventlog.ErrUnavailable until the server can be reached. An error is about the URL, except one
// that wraps eventlog.ErrUnavailable: Connect looks up the servers of a mongodb+srv URL, and then
// the name service has not answered.
func Connect(c Config) (*Store, error) {
	cs, err := connstring.ParseAndValidate(c.URL)
	if err != nil {
		return nil, connectError(err, c.URL)
	}
	s := &Store{Config: c, setup: newSetup()}
	s.lasting, s.endLasting = context.WithCancel(context.Background())
	changes := &event.ServerMonitor{TopologyDescriptionChanged: s.topology.changed}
	if s.client, err = mongo.Connect(s.clientOptions().SetServerMonitor(changes)); err != nil {
		return nil, connectError(err, c.URL)
	}
	s.DB = s.client.Database(cmp.Or(cs.Database, c.Database))
	if s.Beats, err = mongo.Connect(s.clientOptions().SetMinPoolSize(0).SetMaxPoolSize(beatConnections)); err != nil {
		_ = s.client.Disconnect(context.Background()) // it has not been used
		return nil, connectError(err, c.URL)
	}
	return s, nil
}

const (
	// beatConnections allow one beat under way, and one that replaces it.
	beatConnections = 2
	// maxConnections applies if the URL names no other number. An operation holds a connection for
	// one command at a time, and a command that finds none waits until one is free.
	maxConnections = 16
	// minConnections leaves operations some connections for any URL: followers of signals hold one
	// each.
	minConnections = SignalShards + 4
	// connectionIdle is how long a connection may be idle before it is closed, if the URL names no
	// other time.
	connectionIdle = time.Minute
)

func connectError(err error, storeURL string) error {
	message := secrets.Redact(err, storeURL)
	var lookup *net.DNSError
	if errors.As(err, &lookup) && !lookup.IsNotFound {
		return fmt.Errorf("store: %w: %s", eventlog.ErrUnavailable, message)
	}
	return fmt.Errorf("store: %s", message)
}

// clientOptions are the URL's, except for the options that the log's promises require.
func (s *Store) clientOptions() *options.ClientOptions {
	o := mongowatch.ClientOptions(s.URL, "sluice-sidecar "+s.NodeID, s.Timeout, s.Dialer).SetWriteConcern(MajorityWrites)
	switch {
	case o.MaxPoolSize == nil && o.MinPoolSize == nil:
		o.SetMaxPoolSize(maxConnections)
	case o.MaxPoolSize == nil:
		o.SetMaxPoolSize(max(maxConnections, *o.MinPoolSize))
	case *o.MaxPoolSize > 0: // 0: any number
		o.SetMaxPoolSize(max(minConnections, *o.MaxPoolSize))
	}
	if o.MaxConnIdleTime == nil {
		o.SetMaxConnIdleTime(connectionIdle)
	}
	if s.Monitor != nil {
		o.SetMonitor(s.Monitor)
	}
	return o
}

// Close waits for the operations under way and ends the store's goroutines. Then it runs last, and
// closes the connections.
func (s *Store) Close(last func()) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.endLasting()
	s.calls.Wait()
	last()
	return errors.Join(mongowatch.Disconnect(s.client, s.Clock, s.Timeout), mongowatch.Disconnect(s.Beats, s.Clock, s.Timeout))
}

// Lasting ends when the store is closed.
func (s *Store) Lasting() context.Context { return s.lasting }

// Join registers work that Close waits for; its end is Leave. It reports false when the store is
// closed.
func (s *Store) Join() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.calls.Add(1)
	}
	return !s.closed
}

// Leave ends work that Join has registered.
func (s *Store) Leave() { s.calls.Done() }

// Spawn runs f in a goroutine that Close waits for; it reports false when the store is closed.
func (s *Store) Spawn(f func()) bool {
	if !s.Join() {
		return false
	}
	go func() {
		defer s.Leave()
		f()
	}()
	return true
}

// PrimaryTerm ends when another server becomes the primary.
func (s *Store) PrimaryTerm() context.Context { return s.topology.primaryTerm() }

// Refusal says why no server of the URL can be used; nil if one can, or has not answered yet.
func (s *Store) Refusal() error { return s.topology.refusal() }

// Run runs a command on the database.
func (s *Store) Run(ctx context.Context, command string, answer any) error {
	if err := s.DB.RunCommand(ctx, bson.D{{Key: command, Value: 1}}).Decode(answer); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}
