package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	// pollEvery is the interval of the polls for commits of others.
	pollEvery = 250 * time.Millisecond
	// settleEvery is the interval of the checks of an insert that is not settled: it is not yet at
	// a majority, or about to be rolled back.
	settleEvery = 50 * time.Millisecond
)

// After implements store.Store.
func (s *Store) After(ctx context.Context, revision int64) (commits []store.Commit, err error) {
	const op = "read the policy store"
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: revision}}}}
	cursor, err := s.commits.Find(ctx, filter, options.Find().SetSort(byID(1)))
	if err != nil {
		return nil, failed(ctx, op, err)
	}
	defer func() {
		if closing := cursor.Close(ctx); closing != nil && err == nil {
			err = failed(ctx, op, closing)
		}
	}()
	for size := 0; size < store.PageBytes && cursor.Next(ctx); size += len(cursor.Current) {
		c, err := decode(cursor.Current)
		if err != nil {
			return nil, err
		}
		if c.Revision != revision+1 {
			return nil, fmt.Errorf("policy store: commit %d follows %d; documents of %s were removed", c.Revision, revision, commitsName)
		}
		revision = c.Revision
		commits = append(commits, c)
	}
	if err := cursor.Err(); err != nil {
		return nil, failed(ctx, op, err)
	}
	return commits, nil
}

// At implements store.Store.
func (s *Store) At(ctx context.Context, revision int64) (store.Commit, error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return store.Commit{}, err
	}
	defer end()
	return s.one(ctx, revision)
}

// one reads a commit by its revision; store.ErrNone: there is none.
func (s *Store) one(ctx context.Context, revision int64) (store.Commit, error) {
	raw, err := s.commits.FindOne(ctx, byID(revision)).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return store.Commit{}, store.ErrNone
	case err != nil:
		return store.Commit{}, failed(ctx, "read the policy store", err)
	}
	return decode(raw)
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, c store.Commit) error {
	doc, err := encode(c)
	if err != nil {
		return err
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if c.Revision != 1 {
		switch _, err := s.one(ctx, c.Revision-1); {
		case errors.Is(err, store.ErrNone):
			return fmt.Errorf("commit %d cannot follow the last stored commit", c.Revision)
		case err != nil:
			return err
		}
	}
	if err := s.insert(ctx, c, doc); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.grown)
	s.grown = make(chan struct{})
	return nil
}

// insert inserts the document, unless its revision is taken. The document that prevents the insert
// may not have reached the majority yet, where it can be read, or may be about to be rolled back:
// until that is settled, insert tries both.
func (s *Store) insert(ctx context.Context, c store.Commit, doc bson.Raw) error {
	const op = "write to the policy store"
	for {
		_, err := s.commits.InsertOne(ctx, doc)
		switch {
		case err == nil:
			return nil
		case hasCode(err, codeObjectTooLarge):
			return store.ErrTooLarge
		case !mongo.IsDuplicateKeyError(err):
			return failed(ctx, op, err)
		}
		there, err := s.one(ctx, c.Revision)
		switch {
		case err == nil && there.Token == c.Token && c.Token != "":
			return nil // an earlier try, whose answer was lost
		case err == nil:
			return store.ErrConflict
		case !errors.Is(err, store.ErrNone):
			return err
		}
		if !pause.For(ctx, settleEvery) {
			return failed(ctx, op, context.Cause(ctx))
		}
	}
}

// Forget implements store.Store. If two calls remove different policies of one commit at a time,
// the earlier one may have to repeat it.
func (s *Store) Forget(ctx context.Context, changes map[int64][]string) error {
	for revision, names := range changes {
		if err := s.forget(ctx, revision, names); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) forget(ctx context.Context, revision int64, names []string) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	c, err := s.one(ctx, revision)
	if err != nil {
		return err
	}
	c.Forget(names)
	doc, err := encode(c)
	if err != nil {
		return err
	}
	if _, err := s.commits.ReplaceOne(ctx, byID(revision), doc); err != nil {
		return failed(ctx, "write to the policy store", err)
	}
	return nil
}

// Await implements store.Store, by polling every pollEvery.
func (s *Store) Await(ctx context.Context, revision int64) error {
	for {
		s.mu.Lock()
		grown := s.grown
		s.mu.Unlock()
		there, err := s.has(ctx, revision+1)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case s.ctx.Err() != nil:
			return errClosed
		case err == nil && there:
			return nil
		}
		if !pause.Unless(ctx, pollEvery, grown) {
			return ctx.Err()
		}
	}
}

func (s *Store) has(ctx context.Context, revision int64) (bool, error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	err = s.commits.FindOne(ctx, byID(revision), options.FindOne().SetProjection(byID(1))).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	return err == nil, err
}

func byID(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }
