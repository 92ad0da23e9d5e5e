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

// server has the differences between servers that speak MongoDB's protocol.
type server struct {
	// mongo says that it is MongoDB itself, not a compatible engine.
	mongo bool
	// replicated says that it is a member of a replica set, or a mongos.
	replicated bool
}

// ask asks the server for its kind, until it has answered once.
func (s *Store) ask(ctx context.Context) (server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		return *s.server, nil
	}
	var build struct {
		FerretDB1 string   `bson:"ferretdbVersion"`
		FerretDB  bson.Raw `bson:"ferretdb"`
	}
	if err := s.db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err != nil {
		return server{}, fmt.Errorf("ask the server for its kind: %w", err)
	}
	var hello struct {
		SetName string `bson:"setName"`
		Msg     string `bson:"msg"`
	}
	if err := s.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return server{}, fmt.Errorf("ask the server for its kind: %w", err)
	}
	s.server = &server{
		mongo:      build.FerretDB1 == "" && build.FerretDB == nil,
		replicated: hello.SetName != "" || hello.Msg == "isdbgrid",
	}
	return *s.server, nil
}

// CanTransact implements exactlyonce.Transactor.
func (s *Store) CanTransact(ctx context.Context) error {
	is, err := s.ask(ctx)
	switch {
	case err != nil:
		return err
	case !is.mongo:
		return fmt.Errorf("%w: the server is FerretDB, not MongoDB itself; use Do or DoClaimed", exactlyonce.ErrNoTransactions)
	case !is.replicated:
		return fmt.Errorf("%w: the server is a standalone one; make it a replica set (one member is enough), or use Do or DoClaimed", exactlyonce.ErrNoTransactions)
	}
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
