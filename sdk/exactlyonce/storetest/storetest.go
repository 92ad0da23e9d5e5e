// Package storetest is the conformance suite of [exactlyonce.Store]: every store passes all of it.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
)

// Run runs the suite on stores that open makes, each of which is empty.
func Run(t *testing.T, open func(t *testing.T) exactlyonce.Store) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s exactlyonce.Store)
	}{
		{"what was inserted is found", inserted},
		{"one of many inserts wins a slot", oneWins},
		{"extending", extending},
		{"a chain is kept", keepsChain},
		{"what is not there", missing},
		{"a context that has ended", ended},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func slot(n int64) exactlyonce.Slot {
	return exactlyonce.Slot{Key: "group/topic id", Chain: "C1", Number: n}
}

func claim(n int64, owner string) exactlyonce.Record {
	return exactlyonce.Record{
		Slot: slot(n), Kind: exactlyonce.KindClaim, Owner: owner, Lease: 1500 * time.Millisecond,
		ExpireAt: inAnHour(),
	}
}

// inAnHour is exact in every store: some count milliseconds.
func inAnHour() time.Time { return time.Now().Add(time.Hour).Truncate(time.Millisecond) }

func mustInsert(t *testing.T, s exactlyonce.Store, r exactlyonce.Record) {
	t.Helper()
	if err := s.Insert(t.Context(), r); err != nil {
		t.Fatalf("insert %+v: %v", r.Slot, err)
	}
}

func wantRecord(t *testing.T, s exactlyonce.Store, want exactlyonce.Record) {
	t.Helper()
	got, err := s.Get(t.Context(), want.Slot)
	if err != nil {
		t.Fatalf("get %+v: %v", want.Slot, err)
	}
	if !got.ExpireAt.Equal(want.ExpireAt) {
		t.Errorf("%+v expires at %v, want %v", want.Slot, got.ExpireAt, want.ExpireAt)
	}
	got.ExpireAt = want.ExpireAt
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func inserted(t *testing.T, s exactlyonce.Store) {
	first, second := claim(1, "a"), claim(2, "b")
	second.Kind, second.Lease = exactlyonce.KindDone, 0
	mustInsert(t, s, first)
	mustInsert(t, s, second)
	wantRecord(t, s, first)
	wantRecord(t, s, second)
	if r, err := s.Get(t.Context(), exactlyonce.Slot{Key: first.Key, Number: 1}); err != nil || r.Owner != "a" || r.Chain != "C1" {
		t.Errorf("the first record without its chain: %+v, %v", r, err)
	}
	if err := s.Insert(t.Context(), claim(2, "c")); !errors.Is(err, exactlyonce.ErrExists) {
		t.Errorf("inserting into a slot that is taken: %v", err)
	}
	other := claim(1, "c")
	other.Chain = "C2"
	if err := s.Insert(t.Context(), other); !errors.Is(err, exactlyonce.ErrExists) {
		t.Errorf("beginning a chain where there is one: %v", err)
	}
	wantRecord(t, s, first)
	wantRecord(t, s, second)
}

func oneWins(t *testing.T, s exactlyonce.Store) {
	const chains, each = 10, 8
	for i := range chains {
		var winners atomic.Int32
		var all sync.WaitGroup
		start := make(chan struct{})
		for j := range each {
			all.Add(1)
			go func() {
				defer all.Done()
				<-start
				r := claim(1, fmt.Sprint(j))
				r.Key = fmt.Sprint("group/topic ", i)
				switch err := s.Insert(t.Context(), r); {
				case err == nil:
					winners.Add(1)
				case !errors.Is(err, exactlyonce.ErrExists):
					t.Error(err)
				}
			}()
		}
		close(start)
		all.Wait()
		if n := winners.Load(); n != 1 {
			t.Errorf("%d of %d inserts into one slot succeeded", n, each)
		}
	}
}

func extending(t *testing.T, s exactlyonce.Store) {
	r := claim(1, "a")
	mustInsert(t, s, r)
	extend := func(b exactlyonce.Beat) {
		t.Helper()
		if err := s.Extend(t.Context(), r.Slot, b); err != nil {
			t.Fatal(err)
		}
	}
	r.Beat, r.ExpireAt = 1, r.ExpireAt.Add(time.Minute)
	extend(exactlyonce.Beat{Number: 1, ExpireAt: r.ExpireAt})
	wantRecord(t, s, r)
	r.Released = true
	extend(exactlyonce.Beat{Number: 1, Released: true, ExpireAt: r.ExpireAt})
	wantRecord(t, s, r)
	// A beat that comes late neither takes that back nor shortens anything.
	extend(exactlyonce.Beat{Number: 1, ExpireAt: r.ExpireAt.Add(-time.Minute)})
	wantRecord(t, s, r)
}

func keepsChain(t *testing.T, s exactlyonce.Store) {
	ctx := t.Context()
	first, second, third := claim(1, "a"), claim(2, "b"), claim(3, "c")
	for _, r := range []exactlyonce.Record{first, second, third} {
		mustInsert(t, s, r)
	}
	until := inAnHour().Add(time.Hour)
	if kept, err := s.Keep(ctx, slot(3), until); err != nil || !kept {
		t.Fatalf("kept: %v, %v", kept, err)
	}
	first.ExpireAt, first.Head, second.ExpireAt = until, 3, until
	for _, r := range []exactlyonce.Record{first, second, third} {
		wantRecord(t, s, r)
	}
	if kept, err := s.Keep(ctx, slot(2), until.Add(-time.Minute)); err != nil || !kept {
		t.Fatalf("kept: %v, %v", kept, err)
	}
	wantRecord(t, s, first) // neither shortened nor set back
	over := slot(4)
	over.Chain = "C0"
	if kept, err := s.Keep(ctx, over, until); err != nil || kept {
		t.Errorf("a chain that is over was kept: %v, %v", kept, err)
	}
	over.Key = "group/topic other"
	if kept, err := s.Keep(ctx, over, until); err != nil || kept {
		t.Errorf("a chain that never was was kept: %v, %v", kept, err)
	}
}

func missing(t *testing.T, s exactlyonce.Store) {
	ctx := t.Context()
	for _, n := range []int64{1, 2} {
		if _, err := s.Get(ctx, slot(n)); !errors.Is(err, exactlyonce.ErrNotFound) {
			t.Errorf("slot %d: %v", n, err)
		}
	}
	if err := s.Extend(ctx, slot(1), exactlyonce.Beat{Number: 1, ExpireAt: inAnHour()}); err != nil {
		t.Errorf("extending what is not there: %v", err)
	}
	if _, err := s.Get(ctx, slot(1)); !errors.Is(err, exactlyonce.ErrNotFound) {
		t.Errorf("extending made something: %v", err)
	}
	mustInsert(t, s, claim(1, "a"))
	if _, err := s.Get(ctx, slot(2)); !errors.Is(err, exactlyonce.ErrNotFound) {
		t.Errorf("behind the last: %v", err)
	}
}

func ended(t *testing.T, s exactlyonce.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Insert(ctx, claim(1, "a")); err == nil {
		t.Error("inserted")
	}
	if _, err := s.Get(ctx, slot(1)); err == nil || errors.Is(err, exactlyonce.ErrNotFound) {
		t.Errorf("got: %v", err)
	}
}
