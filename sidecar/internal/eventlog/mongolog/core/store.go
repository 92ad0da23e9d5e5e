// Package core is the database under the shared log: its connections, the operations on it with
// their timeouts, causal sessions and retries, and the facts about the server that every part needs.
package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/mongowatch"
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

// causality is how far this client has seen the order of writes in the store.
type causality struct {
	mu        sync.Mutex
	cluster   bson.Raw        // the newest cluster time, signed by the server
	operation *bson.Timestamp // of the newest operation
}

// serverClock is the server's time in a reply.
type serverClock struct {
	mu    sync.Mutex
	shown time.Time
	asOf  Moment // when the reply arrived
}

// setup is the preparation of a store, which the first operation that reaches the server makes.
type setup struct {
	facts    atomic.Pointer[Facts] // nil until then
	turn     chan struct{}         // holds one token, for the goroutine that prepares
	unusable chan struct{}         // closed once refusal is set
	refusal  error
}

func newSetup() setup { return setup{turn: make(chan struct{}, 1), unusable: make(chan struct{})} }

// serverTimeFor is for how long the log relies on a reply's time.
const serverTimeFor = time.Minute

// ServerTime is the time by the server's clock, or a little before it.
func (s *Store) ServerTime(ctx context.Context) (time.Time, error) {
	c := &s.clock
	c.mu.Lock()
	shown, asOf := c.shown, c.asOf
	c.mu.Unlock()
	if shown.IsZero() || asOf.Age(s.Clock) > serverTimeFor {
		var hello struct {
			LocalTime time.Time `bson:"localTime"`
		}
		beats := s.Beats.Database(s.DB.Name())     // beats have it, and must not wait behind appends
		alone := mongo.NewSessionContext(ctx, nil) // a session of the log's client is none of theirs
		if err := beats.RunCommand(alone, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
			return time.Time{}, fmt.Errorf("hello: %w", err)
		}
		shown, asOf = hello.LocalTime, Now(s.Clock)
		c.mu.Lock()
		c.shown, c.asOf = shown, asOf
		c.mu.Unlock()
	}
	return shown.Add(s.Clock.Since(asOf.mono)), nil
}
