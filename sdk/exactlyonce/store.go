package exactlyonce

import (
	"context"
	"errors"
	"time"
)

// Kind is the kind of a record in a chain.
type Kind string

// The kinds of records.
const (
	KindClaim Kind = "claim" // a process runs the effect, or did and gave up
	KindDone  Kind = "done"  // the effect has run: the chain's last record
)

// Slot is a place in a chain, which one record at most can take.
type Slot struct {
	// Key is the scope and the event's id.
	Key string
	// Chain distinguishes this chain of the key from an earlier one that has expired. It is part of
	// the place of every record except the first, so the remains of an expired chain belong to no
	// chain.
	Chain string
	// Number is 1 for the first record, and for each other one more than the record before it.
	Number int64
}

// Next is the slot behind s.
func (s Slot) Next() Slot {
	s.Number++
	return s
}

// Record is the content of a slot.
type Record struct {
	Slot
	Kind Kind
	// Owner is the random token of the call that inserted it.
	Owner string
	// Lease is how long a claim holds without a beat.
	Lease time.Duration
	// Beat rises with each extension of a claim.
	Beat int64
	// Released says that the claim's owner has given up without an effect.
	Released bool
	// Head is the number of a record that is known to be there. Only the first record has it, and
	// it may be behind the last.
	Head int64
	// ExpireAt is when the store may forget the record.
	ExpireAt time.Time
}

// Beat has the fields of a claim that its owner changes.
type Beat struct {
	Number   int64 // the record's Beat
	Released bool  // true: the claim is given up, for good
	ExpireAt time.Time
}

// Store holds the chains. Its methods may be called by several goroutines at once.
//
// After an error other than those named below the outcome is not known: the operation may have
// happened, or may yet happen.
type Store interface {
	// Insert puts the record into its slot, durably, or returns ErrExists where there is one
	// already. If several callers insert into a slot, one succeeds. Everything else relies on that
	// alone. A store that sees that the slot's chain has expired may return ErrNotFound.
	Insert(ctx context.Context, r Record) error
	// Get returns the record in a slot, or ErrNotFound. The Chain of the first slot does not count.
	// It finds every record whose Insert has succeeded, unless that has expired.
	Get(ctx context.Context, s Slot) (Record, error)
	// Extend changes a claim, which only its owner does. Where there is none nothing changes.
	Extend(ctx context.Context, s Slot, b Beat) error
	// Keep raises the ExpireAt of the records before the slot to until where that is later, and the
	// Head of the first to the slot's number. It reports whether the first record is of the slot's
	// chain still.
	Keep(ctx context.Context, s Slot, until time.Time) (bool, error)
}

// Transactor is a Store whose Insert can be part of a transaction, together with what the
// application itself writes to the same database server.
type Transactor interface {
	Store
	// CanTransact returns nil, or an error that matches ErrNoTransactions and says what is wrong
	// with the server, or that the server cannot be asked.
	CanTransact(ctx context.Context) error
	// Transact runs f in a transaction, again if the server asks for it, and commits unless f
	// returns an error. Operations with f's context are part of the transaction. After an error of
	// Transact the outcome is not known, unless it is f's own.
	Transact(ctx context.Context, f func(ctx context.Context) error) error
}

// Errors of stores.
var (
	ErrExists         = errors.New("the slot is taken")
	ErrNotFound       = errors.New("no such record")
	ErrFull           = errors.New("the store is full of claims that are held")
	ErrNoTransactions = errors.New("the store has no transactions")
)
