package oncestore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
)

// CanTransact implements exactlyonce.Transactor. It asks the server until it is a member of a replica set, or a mongos.
func (s *Store) CanTransact(ctx context.Context) error {
	if s.replicated.Load() {
		return nil
	}
	var hello struct {
		SetName string `bson:"setName"`
		Msg     string `bson:"msg"`
	}
	if err := s.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return fmt.Errorf("ask the server for its kind: %w", err)
	}
	if hello.SetName == "" && hello.Msg != "isdbgrid" {
		return fmt.Errorf("%w: the server is a standalone one; make it a replica set (one member is enough), or use Do or DoClaimed",
			exactlyonce.ErrNoTransactions)
	}
	s.replicated.Store(true)
	return nil
}

// Transact implements exactlyonce.Transactor with the driver's Session.WithTransaction, which runs
// f again on transient errors, and commits again where the outcome is not known. Reads are of one
// snapshot of the majority's data.
func (s *Store) Transact(ctx context.Context, f func(ctx context.Context) error) error {
	session, err := s.db.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if err := ctx.Err(); err != nil {
			return nil, err // instead of another try
		}
		return nil, f(ctx)
	}, transaction)
	return err
}

var transaction = options.Transaction().
	SetReadConcern(readconcern.Snapshot()).
	SetReadPreference(readpref.Primary()).
	SetWriteConcern(writeconcern.Majority())
