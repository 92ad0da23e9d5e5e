package sdk_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/test/require"
)

func newHandler(t testing.TB, s exactlyonce.Store, o exactlyonce.Options) *exactlyonce.Handler {
	t.Helper()
	if o.Scope == "" {
		o.Scope = exactlyonce.Scope("orders", "billing")
	}
	if o.Wait == 0 {
		o.Wait = exactlyonce.NoWait
	}
	h, err := exactlyonce.New(s, o)
	require.NoError(t, err)
	return h
}

func nothing(context.Context) error { return nil }

func mustRun(t *testing.T, h *exactlyonce.Handler, id string) {
	t.Helper()
	if ran, err := h.Do(t.Context(), id, nothing); !ran || err != nil {
		t.Fatalf("Do %s: %v, %v; want it to run", id, ran, err)
	}
}

func wantDone(t *testing.T, h *exactlyonce.Handler, id string) {
	t.Helper()
	ran, err := h.Do(t.Context(), id, func(context.Context) error {
		t.Errorf("the effect of %s runs again", id)
		return nil
	})
	if ran || err != nil {
		t.Errorf("Do %s: %v, %v; want it to have run before", id, ran, err)
	}
	if seen, err := h.Seen(t.Context(), id); !seen || err != nil {
		t.Errorf("Seen %s: %v, %v", id, seen, err)
	}
}

func TestOnce(t *testing.T) {
	m := exactlyonce.NewMemory(0)
	h := newHandler(t, m, exactlyonce.Options{})
	if seen, err := h.Seen(t.Context(), "a"); seen || err != nil {
		t.Errorf("seen before it ran: %v, %v", seen, err)
	}
	mustRun(t, h, "a")
	wantDone(t, h, "a")
	wantDone(t, newHandler(t, m, exactlyonce.Options{}), "a") // another process
	mustRun(t, h, "b")
	mustRun(t, newHandler(t, m, exactlyonce.Options{Scope: "others/orders"}), "a")
}

func TestAnEffectThatFailsRunsAgainAtOnce(t *testing.T) {
	h := newHandler(t, exactlyonce.NewMemory(0), exactlyonce.Options{})
	mishap := errors.New("mishap")
	for i := range 5 {
		ran, err := h.DoClaimed(t.Context(), "a", func(_ context.Context, c *exactlyonce.Claim) error {
			if c.Fence != int64(i+1) || c.ID != "a" || c.Err() != nil {
				t.Errorf("try %d has %+v", i, c)
			}
			return mishap
		})
		if ran || !errors.Is(err, mishap) {
			t.Fatalf("%v, %v", ran, err)
		}
	}
	mustRun(t, h, "a")
	wantDone(t, h, "a")
}

func TestAnEffectThatPanicsRunsAgainAtOnce(t *testing.T) {
	h := newHandler(t, exactlyonce.NewMemory(0), exactlyonce.Options{})
	func() {
		defer func() {
			if recover() != "mishap" {
				t.Error("the panic did not go on")
			}
		}()
		_, _ = h.Do(t.Context(), "a", func(context.Context) error { panic("mishap") })
	}()
	mustRun(t, h, "a")
}

// An effect that takes ten leases keeps its claim. A handler that waits for it sees that it has
// run.
func TestLongEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		m := exactlyonce.NewMemory(0)
		h := newHandler(t, m, exactlyonce.Options{Lease: lease})
		go func() {
			ran, err := h.Do(t.Context(), "a", func(ctx context.Context) error {
				time.Sleep(10 * lease)
				return ctx.Err()
			})
			if !ran || err != nil {
				t.Errorf("%v, %v", ran, err)
			}
		}()
		synctest.Wait()
		other := newHandler(t, m, exactlyonce.Options{Lease: lease})
		for range 10 {
			ran, err := other.Do(t.Context(), "a", nothing)
			after, is := exactlyonce.RetryAfter(err)
			if ran || !errors.Is(err, exactlyonce.ErrInProgress) || !is || after <= 0 || after > lease {
				t.Fatalf("%v, %v", ran, err)
			}
			time.Sleep(lease * 9 / 10)
		}
		wantDone(t, newHandler(t, m, exactlyonce.Options{Wait: 2 * lease}), "a")
	})
}

// stopped is the store of a process that is killed or paused: from then on it does nothing, and no
// call returns before it is resumed.
type stopped struct {
	exactlyonce.Store
	stop atomic.Pointer[chan struct{}]
}

func (s *stopped) pause() (resume func()) {
	c := make(chan struct{})
	s.stop.Store(&c)
	return func() { s.stop.Store(nil); close(c) }
}

func (s *stopped) wait() {
	if c := s.stop.Load(); c != nil {
		<-*c
	}
}

func (s *stopped) Insert(ctx context.Context, r exactlyonce.Record) error {
	s.wait()
	return s.Store.Insert(ctx, r)
}

func (s *stopped) Extend(ctx context.Context, at exactlyonce.Slot, b exactlyonce.Beat) error {
	s.wait()
	return s.Store.Extend(ctx, at, b)
}

func (s *stopped) Get(ctx context.Context, at exactlyonce.Slot) (exactlyonce.Record, error) {
	s.wait()
	return s.Store.Get(ctx, at)
}

// A claimant that is paused beyond its lease must not overwrite the mark of its successor.
func TestPausedClaimantIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		m := exactlyonce.NewMemory(0)
		path := &stopped{Store: m}
		paused := newHandler(t, path, exactlyonce.Options{Lease: lease})
		result := make(chan error, 1)
		var fence int64
		resumed := make(chan struct{})
		go func() {
			_, err := paused.DoClaimed(t.Context(), "a", func(ctx context.Context, c *exactlyonce.Claim) error {
				fence = c.Fence
				<-resumed
				if !errors.Is(c.Err(), exactlyonce.ErrLeaseLost) || !errors.Is(context.Cause(ctx), exactlyonce.ErrLeaseLost) {
					t.Errorf("a lost lease: %v, %v", c.Err(), context.Cause(ctx))
				}
				return nil // it does not look
			})
			result <- err
		}()
		synctest.Wait()
		resume := path.pause()

		other := newHandler(t, m, exactlyonce.Options{Lease: lease})
		_, err := other.Do(t.Context(), "a", nothing)
		after, _ := exactlyonce.RetryAfter(err)
		if after != lease {
			t.Fatalf("the lease was seen now, so it has all of its time: %v", err)
		}
		time.Sleep(after)
		ran, err := other.DoClaimed(t.Context(), "a", func(_ context.Context, c *exactlyonce.Claim) error {
			if c.Fence <= fence {
				t.Errorf("fence %d behind %d", c.Fence, fence)
			}
			resume()
			close(resumed)
			if err := <-result; !errors.Is(err, exactlyonce.ErrFenced) {
				t.Errorf("the paused one got %v", err)
			}
			return nil
		})
		if !ran || err != nil {
			t.Errorf("the other: %v, %v", ran, err)
		}
		wantDone(t, paused, "a")
	})
}

// If no process has taken its place, the mark of a paused claimant saves an effect.
func TestPausedClaimantMarksWhereNobodyFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := &stopped{Store: exactlyonce.NewMemory(0)}
		h := newHandler(t, path, exactlyonce.Options{})
		ran, err := h.Do(t.Context(), "a", func(context.Context) error {
			resume := path.pause()
			time.Sleep(time.Hour)
			resume()
			return nil
		})
		if !ran || err != nil {
			t.Errorf("%v, %v", ran, err)
		}
		wantDone(t, h, "a")
	})
}

func TestTheEffectsContextEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := &stopped{Store: exactlyonce.NewMemory(0)}
		h := newHandler(t, path, exactlyonce.Options{Lease: 30 * time.Second})
		began := time.Now()
		ran, err := h.Do(t.Context(), "a", func(ctx context.Context) error {
			time.AfterFunc(time.Minute, path.pause())
			<-ctx.Done()
			if took := time.Since(began); took >= 30*time.Second {
				t.Errorf("the context ended after %v: others could have taken over", took)
			}
			time.Sleep(time.Minute)
			return ctx.Err()
		})
		if ran || !errors.Is(err, exactlyonce.ErrLeaseLost) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", ran, err)
		}
		mustRun(t, h, "a") // given up, so that others run at once
	})
}

// The caller's context ends while the effect runs. The handler finishes the effect and marks it.
func TestAnEffectThatHasRunIsMarkedWithoutItsCaller(t *testing.T) {
	h := newHandler(t, exactlyonce.NewMemory(0), exactlyonce.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ran, err := h.Do(ctx, "a", func(context.Context) error { cancel(); return nil })
	if !ran || err != nil {
		t.Errorf("%v, %v", ran, err)
	}
	wantDone(t, h, "a")
}

func TestMark(t *testing.T) {
	h := newHandler(t, exactlyonce.NewMemory(0), exactlyonce.Options{})
	ctx := t.Context()
	for range 2 {
		require.NoError(t, h.Mark(ctx, "a"))
		wantDone(t, h, "a")
	}
	ran, err := h.Do(ctx, "b", func(ctx context.Context) error { return h.Mark(ctx, "b") })
	if !ran || !errors.Is(err, exactlyonce.ErrFenced) {
		t.Errorf("marked by another while it ran: %v, %v", ran, err)
	}
	wantDone(t, h, "b")
}

func TestDedupeStore(t *testing.T) {
	ctx := t.Context()
	m := exactlyonce.NewMemory(0)
	d := exactlyonce.NewDedupeStore(m)
	seen := func(topic, group, id string) bool {
		t.Helper()
		is, err := d.Seen(ctx, topic, group, id)
		require.NoError(t, err)
		return is
	}
	if seen("orders", "billing", "a") {
		t.Error("seen before")
	}
	require.NoError(t, d.Mark(ctx, "orders", "billing", "a", 0))
	if !seen("orders", "billing", "a") || seen("orders", "mail", "a") || seen("refunds", "billing", "a") || seen("orders", "billing", "b") {
		t.Error("a mark is for its topic, group and id")
	}
	wantDone(t, newHandler(t, m, exactlyonce.Options{}), "a")
	if err := d.Mark(ctx, "orders", "billing", "a", -1); err == nil {
		t.Error("a negative TTL is taken")
	}
	if _, err := d.Seen(ctx, "orders", "bill ing", "a"); err == nil {
		t.Error("a group with a space is taken")
	}
}

func TestOptions(t *testing.T) {
	m := exactlyonce.NewMemory(0)
	_, err := exactlyonce.New(m, exactlyonce.Options{Lease: time.Millisecond, TTL: -1, Wait: -2, Timeout: -1})
	for _, field := range []string{"Scope", "Lease", "TTL", "Wait", "Timeout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	for _, scope := range []string{"a b", "a\x00", "\xff", strings.Repeat("x", 513)} {
		if _, err := exactlyonce.New(m, exactlyonce.Options{Scope: scope}); err == nil {
			t.Errorf("scope %.20q is taken", scope)
		}
	}
	h := newHandler(t, m, exactlyonce.Options{})
	for _, id := range []string{"", "a b", strings.Repeat("x", 129)} {
		if _, err := h.Do(t.Context(), id, nothing); err == nil {
			t.Errorf("id %.20q is taken", id)
		}
		if _, err := h.Seen(t.Context(), id); err == nil {
			t.Errorf("id %.20q is looked up", id)
		}
		if err := h.Mark(t.Context(), id); err == nil {
			t.Errorf("id %.20q is marked", id)
		}
	}
}

func TestDoTxNeedsTransactions(t *testing.T) {
	h := newHandler(t, exactlyonce.NewMemory(0), exactlyonce.Options{})
	committed, err := h.DoTx(t.Context(), "a", func(context.Context) error {
		t.Error("it runs")
		return nil
	})
	if committed || !errors.Is(err, exactlyonce.ErrNoTransactions) {
		t.Errorf("%v, %v", committed, err)
	}
	mustRun(t, h, "a") // nothing was claimed
}
