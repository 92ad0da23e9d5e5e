package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// Bounds of one wait between two tries.
const (
	// ShortWait: another sidecar's write is on its way to the majority.
	ShortWait = 20 * time.Millisecond
	// LongWait: the server may be away.
	LongWait = 500 * time.Millisecond
)

// ErrBehind says that a majority read does not yet return a document that is known to be stored.
var ErrBehind = errors.New("events before these are not acknowledged by a majority yet")

// Backoff counts failed tries. The zero value has none.
type Backoff struct{ tries int }

// Sleep waits 1, 2, 4, … ms, at most longest, less up to half of it, so that waiters for the same
// thing do not retry together.
func (b *Backoff) Sleep(ctx context.Context, c clock.Clock, longest time.Duration) error {
	d := min(time.Millisecond<<min(b.tries, 20), longest)
	b.tries++
	if !c.Sleep(ctx, d-rand.N(d/2+1)) {
		return ctx.Err()
	}
	return nil
}

// Persist runs an operation that may be repeated, until its outcome is known, or the context ends,
// or another try would fail the same way. An upsert may fail because another sidecar has just
// inserted the document, so Persist repeats it after a duplicate key, too.
func (s *Store) Persist(ctx context.Context, do func() error) error {
	var wait Backoff
	for {
		err := do()
		if err == nil || errors.Is(err, mongo.ErrNoDocuments) || IsPermanent(err) || IsBadDocument(err) {
			return err
		}
		if wait.Sleep(ctx, s.Clock, LongWait) != nil {
			return err
		}
	}
}

// MongoDB's error codes that matter here.
const (
	CodeUnauthorized              = 13
	CodeAuthenticationFailed      = 18
	CodeNamespaceNotFound         = 26
	CodeNamespaceExists           = 48
	CodeIndexOptionsConflict      = 85
	CodeIndexKeySpecsConflict     = 86
	CodeUnsatisfiableWriteConcern = 100
	CodeNoMajorityReads           = 148
	CodeDuplicateKey              = 11000
)

// badDocument are the codes of errors that the document itself causes, so another try would not
// help: BadValue, TypeMismatch, Overflow, InvalidBSON, DollarPrefixedFieldName, EmptyFieldName,
// DottedFieldName, DocumentValidationFailure, BSONObjectTooLarge, KeyTooLong and two of "the
// document is too large".
var badDocument = []int{2, 14, 15, 22, 52, 56, 57, 121, 10334, 17280, 17419, 17420}

// notOffered are the codes with which servers refuse a feature that they lack: BadValue,
// FailedToParse, IllegalOperation, CommandNotFound, InvalidOptions, CommandNotSupported,
// NotImplemented, APIStrictError, and Atlas's own.
var notOffered = []int{2, 9, 20, 59, 72, 115, 238, 323, 8000}

// HasCode reports whether the server answered with one of these error codes.
func HasCode(err error, codes ...int) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return ok && slices.ContainsFunc(codes, server.HasErrorCode)
}

// IsBadDocument reports whether the server refused a document because of its content.
func IsBadDocument(err error) bool { return HasCode(err, badDocument...) }

// IsNotOffered reports whether the server lacks the feature.
func IsNotOffered(err error) bool { return HasCode(err, notOffered...) }

// IsPermanent reports whether another try would fail the same way.
func IsPermanent(err error) bool {
	_, broken := errors.AsType[*document.Error](err)
	return broken || HasCode(err, CodeUnauthorized, CodeAuthenticationFailed)
}

// onlyDuplicates reports whether duplicate keys alone prevented an unordered insert from storing
// everything.
func onlyDuplicates(err error) bool {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return false
	}
	for _, e := range bulk.WriteErrors {
		if e.Code != CodeDuplicateKey {
			return false
		}
	}
	return true
}

// Advice is what to do about an error that does not go away by itself.
func Advice(err error) string {
	switch {
	case HasCode(err, CodeUnauthorized):
		return " (the user in the store's URL needs the role readWrite on its database)"
	case HasCode(err, CodeAuthenticationFailed):
		return " (the user or password in the store's URL is wrong)"
	case HasCode(err, CodeNoMajorityReads):
		return " (the server runs with enableMajorityReadConcern off, which the log cannot use)"
	}
	return ""
}

// Batcher writes one batch at a time. Calls that arrive meanwhile form the next batch. The number
// of callers bounds the batch, since each caller waits for its answer.
type Batcher[T any] struct {
	mu      sync.Mutex
	waiting []T
	running bool
}

// Add makes the item part of the next batch. The next batch waits for linger after the previous
// one: callers that were just answered may have more.
func (b *Batcher[T]) Add(s *Store, item T, linger time.Duration, write func([]T)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running && !s.Spawn(func() { b.run(s, linger, write) }) {
		return ErrClosed
	}
	b.running = true
	b.waiting = append(b.waiting, item)
	return nil
}

// run writes batch after batch until nothing waits.
func (b *Batcher[T]) run(s *Store, linger time.Duration, write func([]T)) {
	for first := true; ; first = false {
		if !first {
			s.Clock.Sleep(s.lasting, linger)
		}
		b.mu.Lock()
		items := b.waiting
		b.waiting = nil
		b.running = len(items) > 0
		b.mu.Unlock()
		if len(items) == 0 {
			return
		}
		write(items)
	}
}
