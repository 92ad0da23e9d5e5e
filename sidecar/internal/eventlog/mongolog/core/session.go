package core

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

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
