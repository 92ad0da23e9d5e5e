package mongolog

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Who owns what is decided by two sides that each write first and then read
// what the other has written: an owner saves epoch e and then looks for e+1, a
// taker inserts e+1 and then reads e. One of the two must see the other.
//
// On one server, or under one primary, that is plain: each read comes after
// the reader's own write, and the server does one write after the other. In a
// replica set primaries change, and a client (or one of several mongos) may
// read from one that does not know yet that it was replaced. What holds there
// is the order of the writes that a majority has: there is one, it never
// changes, and both writes are in it once they are acknowledged at majority.
// If e was saved before e+1 was inserted, then the taker's read finds the save,
// else the owner's read finds e+1, provided that each read sees all of that
// order up to its own side's write. That is what majority reads in a causally
// consistent session give: the server waits until its majority-committed data
// has reached the session's time, which a replaced primary's never does. A
// local read would not be enough: it may come from a replaced primary. Nor
// does a majority read miss an e+1 that it must see because a majority does not
// have it yet: it was written before e was, and e is acknowledged.
//
// The collection of epochs must therefore not be spread over shards other than
// by topic, group and partition.

// past is how far this log has seen the order of the writes in the store.
type past struct {
	mu        sync.Mutex
	cluster   bson.Raw        // the newest cluster time, signed by the server
	operation *bson.Timestamp // of the newest operation
}

// causally runs operations each of which sees what all earlier ones of this
// log have seen and written, also those of other calls.
func (l *Log) causally(ctx context.Context, do func(ctx context.Context) error) error {
	if !l.engine().replicated {
		return do(ctx)
	}
	s, err := l.client.StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		return err
	}
	defer s.EndSession(ctx)
	if err := l.past.bring(s); err != nil {
		return err
	}
	err = do(mongo.NewSessionContext(ctx, s))
	l.past.learn(s)
	return err
}

// bring moves a new session up to the past.
func (p *past) bring(s *mongo.Session) error {
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

// learn moves the past up to where a session has come.
func (p *past) learn(s *mongo.Session) {
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
