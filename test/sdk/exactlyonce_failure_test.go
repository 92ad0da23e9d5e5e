package sdk_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/test/require"
)

// A chain must not lose its beginning before its end: a process that found it without its beginning
// would start another chain.
func TestClaimsOutliveTheirMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := &recorder{Store: exactlyonce.NewMemory(0)}
		h := newHandler(t, path, exactlyonce.Options{})
		mishap := errors.New("mishap")
		for _, result := range []error{mishap, mishap, nil} {
			time.Sleep(5 * 24 * time.Hour)
			_, err := h.Do(t.Context(), "a", func(context.Context) error {
				time.Sleep(36 * time.Hour) // a long one
				return result
			})
			if !errors.Is(err, result) {
				t.Fatal(err)
			}
		}
		last, err := path.Get(t.Context(), path.last.Next()) // the mark
		if err != nil || last.Kind != exactlyonce.KindDone || last.Number != 4 {
			t.Fatalf("%+v, %v", last, err)
		}
		for n := range last.Number - 1 {
			at := last.Slot
			at.Number = n + 1
			r, err := path.Get(t.Context(), at)
			require.NoError(t, err)
			if left := r.ExpireAt.Sub(last.ExpireAt); left < 30*time.Minute {
				t.Errorf("claim %d is kept %v longer than the mark", r.Number, left)
			}
		}
	})
}

// recorder remembers the slot of the last claim.
type recorder struct {
	exactlyonce.Store
	last exactlyonce.Slot
}

func (s *recorder) Insert(ctx context.Context, r exactlyonce.Record) error {
	err := s.Store.Insert(ctx, r)
	if err == nil && r.Kind == exactlyonce.KindClaim {
		s.last = r.Slot
	}
	return err
}

// A process whose clock stood still does not see that its lease is over. It finds out at the next
// extension.
func TestExtendingFindsOutThatItIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, exactlyonce.NewMemory(0), exactlyonce.Options{Lease: 30 * time.Second})
		began := time.Now()
		ran, err := h.Do(t.Context(), "a", func(ctx context.Context) error {
			if err := h.Mark(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if ran || !errors.Is(err, exactlyonce.ErrFenced) || time.Since(began) > 10*time.Second {
			t.Errorf("%v, %v after %v", ran, err, time.Since(began))
		}
	})
}

// stale answers from the past until a process takes a claim over.
type stale struct {
	exactlyonce.Store
	fresh atomic.Bool
}

func (s *stale) Insert(ctx context.Context, r exactlyonce.Record) error {
	err := s.Store.Insert(ctx, r)
	if err == nil && r.Number > 1 {
		s.fresh.Store(true)
	}
	return err
}

func (s *stale) Get(ctx context.Context, at exactlyonce.Slot) (exactlyonce.Record, error) {
	r, err := s.Store.Get(ctx, at)
	if !s.fresh.Load() {
		r.Beat = 0
	}
	return r, err
}

// A store that answers from the past lets a process take over a living claim. Then both let go
// before another process runs.
func TestTakingOverAClaimThatLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		m := exactlyonce.NewMemory(0)
		alive := newHandler(t, m, exactlyonce.Options{Lease: lease})
		var running atomic.Bool
		result := make(chan error, 1)
		go func() {
			_, err := alive.Do(t.Context(), "a", func(ctx context.Context) error {
				running.Store(true)
				defer running.Store(false)
				<-ctx.Done()
				return ctx.Err()
			})
			result <- err
		}()
		synctest.Wait()
		path := &stale{Store: m}
		ran, err := newHandler(t, path, exactlyonce.Options{Lease: lease, Wait: 5 * lease}).Do(t.Context(), "a", func(context.Context) error {
			if running.Load() {
				t.Error("two effects at once")
			}
			return nil
		})
		if !ran || err != nil || !path.fresh.Load() {
			t.Errorf("%v, %v", ran, err)
		}
		if err := <-result; !errors.Is(err, exactlyonce.ErrFenced) {
			t.Errorf("the one that lived got %v", err)
		}
	})
}

// broken fails some of its calls.
type broken struct {
	*database
	insert, commit func(do func() error) error // nil: just do
	conflicts      atomic.Int32                // so many transactions are run again
}

func (s *broken) Insert(ctx context.Context, r exactlyonce.Record) error {
	if tx, ok := ctx.Value(txKey{}).(*transaction); ok {
		tx.inserts = append(tx.inserts, r)
		return nil
	}
	do := func() error { return s.database.Insert(ctx, r) }
	if s.insert != nil && r.Kind == exactlyonce.KindDone {
		return s.insert(do)
	}
	return do()
}

func (s *broken) CanTransact(context.Context) error { return nil }

func (s *broken) Transact(ctx context.Context, f func(context.Context) error) error {
	for {
		tx := &transaction{}
		if err := f(context.WithValue(ctx, txKey{}, tx)); err != nil {
			return err
		}
		if s.conflicts.Add(-1) >= 0 {
			continue
		}
		do := func() error { return s.database.commit(tx) }
		if s.commit != nil {
			return s.commit(do)
		}
		return do()
	}
}

func newFakeDatabase() *database {
	return &database{Memory: exactlyonce.NewMemory(0), counters: map[string]int{}}
}

func lost(do func() error) error { _ = do(); return errLost }

func unsent(func() error) error { return errLost }

func TestTheMarkDoesNotGetThrough(t *testing.T) {
	for _, test := range []struct {
		name   string
		insert func(func() error) error
		runs   int
		want   error
	}{
		{"its answers are lost", lost, 1, nil},
		{"it is not sent", unsent, 2, exactlyonce.ErrNotMarked},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &broken{database: newFakeDatabase(), insert: test.insert}
				h := newHandler(t, s, exactlyonce.Options{Wait: time.Hour})
				runs := 0
				effect := func(context.Context) error { runs++; return nil }
				if ran, err := h.Do(t.Context(), "a", effect); !ran || !errors.Is(err, test.want) {
					t.Errorf("%v, %v; want %v", ran, err, test.want)
				}
				s.insert = nil
				if ran, err := h.Do(t.Context(), "a", effect); ran != (test.runs == 2) || err != nil || runs != test.runs {
					t.Errorf("again: %v, %v, %d runs; want %d", ran, err, runs, test.runs)
				}
			})
		})
	}
}

func TestTransactionsOutcome(t *testing.T) {
	mishap := errors.New("mishap")
	for _, test := range []struct {
		name      string
		commit    func(func() error) error
		conflicts int32
		effect    func(h *exactlyonce.Handler) error
		committed bool
		want      error
		count     int
	}{
		{name: "committed", committed: true, count: 1},
		{name: "committed after conflicts", conflicts: 3, committed: true, count: 1},
		{name: "the answer is lost", commit: lost, committed: true, count: 1},
		{name: "it is not sent", commit: unsent, want: errLost},
		{name: "the effect fails", effect: func(*exactlyonce.Handler) error { return mishap }, want: mishap},
		{name: "marked by another", effect: func(h *exactlyonce.Handler) error { return h.Mark(context.Background(), "a") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &broken{database: newFakeDatabase(), commit: test.commit}
				s.conflicts.Store(test.conflicts)
				h := newHandler(t, s, exactlyonce.Options{})
				committed, err := h.DoTx(t.Context(), "a", func(ctx context.Context) error {
					increment(ctx, "n")
					if test.effect != nil {
						return test.effect(h)
					}
					return nil
				})
				if committed != test.committed || !errors.Is(err, test.want) || s.counter("n") != test.count {
					t.Errorf("%v, %v, counted %d; want %v, %v, %d", committed, err, s.counter("n"), test.committed, test.want, test.count)
				}
				if seen, err := h.Seen(t.Context(), "a"); err != nil || seen != (test.want == nil) {
					t.Errorf("seen: %v, %v", seen, err)
				}
				if test.want == nil {
					return
				}
				s.commit = nil // and it comes again, at once
				committed, err = h.DoTx(t.Context(), "a", func(ctx context.Context) error { increment(ctx, "n"); return nil })
				if !committed || err != nil || s.counter("n") != 1 {
					t.Errorf("again: %v, %v, counted %d", committed, err, s.counter("n"))
				}
			})
		})
	}
}

// A transaction that was paused beyond its lease does not commit.
func TestPausedTransactionIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &broken{database: newFakeDatabase()}
		path := &stopped{Store: s}
		h := newHandler(t, transactor{path, s}, exactlyonce.Options{})
		other := newHandler(t, s, exactlyonce.Options{Wait: time.Hour})
		ran := make(chan bool, 1)
		committed, err := h.DoTx(t.Context(), "a", func(ctx context.Context) error {
			increment(ctx, "n")
			resume := path.pause()
			defer resume()
			began := make(chan struct{})
			go func() {
				committed, err := other.DoTx(t.Context(), "a", func(ctx context.Context) error {
					increment(ctx, "n")
					close(began)
					time.Sleep(time.Minute)
					return nil
				})
				ran <- committed && err == nil
			}()
			<-began
			return nil // it does not look at its context
		})
		if committed || !errors.Is(err, exactlyonce.ErrFenced) {
			t.Errorf("%v, %v", committed, err)
		}
		if !<-ran || s.counter("n") != 1 {
			t.Errorf("the other did not commit, or counted %d", s.counter("n"))
		}
	})
}

// transactor has the transactions of one store, and all else of another.
type transactor struct {
	exactlyonce.Store
	tx *broken
}

func (s transactor) Insert(ctx context.Context, r exactlyonce.Record) error {
	if ctx.Value(txKey{}) != nil {
		return s.tx.Insert(ctx, r)
	}
	return s.Store.Insert(ctx, r)
}

func (s transactor) CanTransact(ctx context.Context) error { return s.tx.CanTransact(ctx) }

func (s transactor) Transact(ctx context.Context, f func(context.Context) error) error {
	return s.tx.Transact(ctx, f)
}
