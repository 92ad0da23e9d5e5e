package core

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/clock"
)

// causality is how far this client has seen the order of writes in the store.
type causality struct {
	mu        sync.Mutex
	cluster   bson.Raw        // the newest cluster time, signed by the server
	operation *bson.Timestamp // of the newest operation
}

// Causally runs operations in a causally consistent session. Each operation sees everything that
// earlier operations of this store have read and written in such sessions. So majority reads in it
// never return what a replaced primary believes: the server waits until its majority-committed data
// has reached the session's time, which a replaced primary's never does.
func (s *Store) Causally(ctx context.Context, do func(ctx context.Context) error) error {
	return s.CausallyOn(ctx, s.client, do)
}

// CausallyOn is Causally on connections of this client.
func (s *Store) CausallyOn(ctx context.Context, client *mongo.Client, do func(ctx context.Context) error) error {
	session, err := client.StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	if err := s.causal.advance(session); err != nil {
		return err
	}
	err = do(mongo.NewSessionContext(ctx, session))
	s.causal.observe(session)
	return err
}

// advance moves a new session up to the last known time.
func (c *causality) advance(s *mongo.Session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.operation == nil {
		return nil
	}
	if err := s.AdvanceClusterTime(c.cluster); err != nil {
		return err
	}
	return s.AdvanceOperationTime(c.operation)
}

// observe remembers the time that a session has reached.
func (c *causality) observe(s *mongo.Session) {
	operation, cluster := s.OperationTime(), s.ClusterTime()
	if operation == nil || cluster == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.operation == nil || operation.After(*c.operation) {
		c.operation, c.cluster = operation, cluster
	}
}

// Moment is a point in time by both clocks: the monotonic one stands still while a machine sleeps,
// and the other may be set back.
type Moment struct{ mono, wall time.Time }

// Now is the present moment.
func Now(c clock.Clock) Moment {
	t := c.Now()
	return Moment{mono: t, wall: t.Round(0)}
}

// Age is the time since the moment, by the clock that shows the longer time.
func (m Moment) Age(c clock.Clock) time.Duration {
	t := c.Now()
	return max(t.Sub(m.mono), t.Round(0).Sub(m.wall))
}

// serverClock is the server's time in a reply.
type serverClock struct {
	mu    sync.Mutex
	shown time.Time
	asOf  Moment // when the reply arrived
}

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
		if err := s.Run(ctx, "hello", &hello); err != nil {
			return time.Time{}, err
		}
		shown, asOf = hello.LocalTime, Now(s.Clock)
		c.mu.Lock()
		c.shown, c.asOf = shown, asOf
		c.mu.Unlock()
	}
	return shown.Add(s.Clock.Since(asOf.mono)), nil
}
