package mongolog

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A save counts until a later epoch is taken. The taker of epoch e+1 inserts it, then fences e,
// then reads e. An owner saves e only while it is not fenced. Both write the same document, so one
// comes after the other in the order of the writes that a majority has, which never changes once
// they are acknowledged: either the taker reads the save, or the save finds e fenced and changes
// nothing. A save costs one command. A save that changed nothing costs another to find the reason.
//
// The taker's read has to see all of that order up to its own fence, and up to the insert after
// which it read the epochs to fence. In a replica set a client (or one of several mongos) may read
// from a primary that does not know yet that it was replaced. Majority reads in a causally
// consistent session rule that out: the server waits until its majority-committed data has reached
// the session's time, which a replaced primary's never does.
//
// The collection of epochs must not be spread over shards other than by topic, group and partition.

// causality is how far this log has seen the order of writes in the store.
type causality struct {
	mu        sync.Mutex
	cluster   bson.Raw        // the newest cluster time, signed by the server
	operation *bson.Timestamp // of the newest operation
}

// causally runs operations in a causally consistent session. Each operation sees everything that
// earlier operations of this log have read and written, in any call.
func (l *Log) causally(ctx context.Context, do func(ctx context.Context) error) error {
	return l.causallyOn(ctx, l.client, do)
}

// withinSession is within, with a causally consistent session.
func (l *Log) withinSession(ctx context.Context, op string, step func(ctx context.Context) error) error {
	return l.within(ctx, op, func(ctx context.Context) error { return l.causally(ctx, step) })
}

// causallyOn is causally on connections of this client.
func (l *Log) causallyOn(ctx context.Context, client *mongo.Client, do func(ctx context.Context) error) error {
	s, err := client.StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		return err
	}
	defer s.EndSession(ctx)
	if err := l.causal.advance(s); err != nil {
		return err
	}
	err = do(mongo.NewSessionContext(ctx, s))
	l.causal.observe(s)
	return err
}

// advance moves a new session up to the last known time.
func (p *causality) advance(s *mongo.Session) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.operation == nil {
		return nil
	}
	if err := s.AdvanceClusterTime(p.cluster); err != nil {
		return err
	}
	return s.AdvanceOperationTime(p.operation)
}

// observe remembers the time that a session has reached.
func (p *causality) observe(s *mongo.Session) {
	at, cluster := s.OperationTime(), s.ClusterTime()
	if at == nil || cluster == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.operation == nil || at.After(*p.operation) {
		p.operation, p.cluster = at, cluster
	}
}
