package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// mortal is the store of a process that can die.
type mortal struct {
	exactlyonce.Store
	dead atomic.Bool
}

func (s *mortal) Insert(ctx context.Context, r exactlyonce.Record) error {
	if s.dead.Load() {
		return errKilled
	}
	return s.Store.Insert(ctx, r)
}

func (s *mortal) Extend(ctx context.Context, slot exactlyonce.Slot, b exactlyonce.Beat) error {
	if s.dead.Load() {
		return errKilled
	}
	return s.Store.Extend(ctx, slot, b)
}

// Eight consumers of a group share ten events, and one of them dies in the middle of an effect.
// Each effect is there once, and no event was given back.
func TestOnceWithADeadConsumer(t *testing.T) {
	const replicas, events = 8, 10
	var nacks atomic.Int64
	sidecar := sluicetest.Start(sluicetest.Options{RefuseSettling: func(op string, ids []string) *wire.Error {
		if op != wire.OpAck {
			nacks.Add(int64(len(ids)))
		}
		return nil
	}})
	defer sidecar.Close()
	marks := exactlyonce.NewMemory(0)
	var mu sync.Mutex
	effects := map[string]int{}
	died := make(chan struct{})
	var clients []*sluice.Client
	for i := range replicas {
		client, err := sluice.Dial(t.Context(), sidecar.URL)
		require.NoError(t, err)
		clients = append(clients, client)
		defer func() { _ = client.Close() }()
		store := &mortal{Store: marks}
		h, err := exactlyonce.New(store, exactlyonce.Options{Scope: exactlyonce.Scope("orders", "g"), Lease: 300 * time.Millisecond,
			Timeout: 100 * time.Millisecond})
		require.NoError(t, err)
		handle := exactlyonce.Once(h, func(ctx context.Context, m *sluice.Message) error {
			if i == 0 {
				store.dead.Store(true)
				close(died)
				<-ctx.Done()
				return ctx.Err()
			}
			<-died
			mu.Lock()
			defer mu.Unlock()
			effects[m.Event.ID]++
			return nil
		})
		if _, err := client.Subscribe(t.Context(), "orders", "g", handle, option.FromEarliest(), option.MaxInflight(2)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range events {
		if _, err := clients[1].Publish(t.Context(), &sluice.Event{ID: fmt.Sprint(i), Topic: "orders", Payload: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	<-died
	if err := clients[0].Close(); err != nil { // the others get what it had
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); sidecar.Acked("orders", "g") < events; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d are acked", sidecar.Acked("orders", "g"))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(effects) != events || nacks.Load() > 0 {
		t.Errorf("%d effects, %d nacks: %v", len(effects), nacks.Load(), effects)
	}
	for id, n := range effects {
		if n != 1 {
			t.Errorf("the effect of %s is there %d times", id, n)
		}
	}
}

// blocked is a store in which a dead process's transaction keeps the place behind the first claim.
type blocked struct {
	*broken
	until time.Time
}

func (s *blocked) Insert(ctx context.Context, r exactlyonce.Record) error {
	if r.Number == 2 && time.Now().Before(s.until) {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.broken.Insert(ctx, r)
}

// A transaction waits for the transaction of a process that died in it. If its context ends before,
// the error says so.
func TestDoTxWaitsForDeadTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &blocked{broken: &broken{database: newFakeDatabase()}, until: time.Now().Add(time.Minute)}
		dying := &mortal{Store: s}
		dead := newHandler(t, dying, exactlyonce.Options{})
		func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, _ = dead.Do(ctx, "a", func(context.Context) error { dying.dead.Store(true); return errKilled })
		}()
		h, err := exactlyonce.New(s, exactlyonce.Options{Scope: exactlyonce.Scope("orders", "billing")})
		require.NoError(t, err)
		count := func(ctx context.Context) error { increment(ctx, "n"); return nil }
		short, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		if committed, err := h.DoTx(short, "a", count); committed || err == nil || !strings.Contains(err.Error(), "claim") {
			t.Errorf("%v, %v", committed, err)
		}
		if _, err := h.Do(t.Context(), "a", func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a transaction: %v", err)
		}
		committed, err := h.DoTx(t.Context(), "a", count)
		if !committed || err != nil || s.counter("n") != 1 {
			t.Errorf("%v, %v, counted %d", committed, err, s.counter("n"))
		}
		if waited := time.Since(s.until); waited < 0 || waited > 20*time.Second {
			t.Errorf("it went on %v after the transaction was gone", waited)
		}
	})
}
