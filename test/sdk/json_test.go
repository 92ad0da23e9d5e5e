package sdk_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/sluicetest"
	"github.com/sluice-bus/sluice/test/testkit"
)

func TestJSON(t *testing.T) {
	var mu sync.Mutex
	dead := 0
	sidecar, client := open(t, sluicetest.Options{RefuseSettling: func(op string, ids []string) *wire.Error {
		mu.Lock()
		defer mu.Unlock()
		if op == wire.OpNack {
			dead += len(ids)
		}
		return nil
	}})
	for id, payload := range map[string]string{"1": `{"n":17}`, "2": `{"n":"x"}`} {
		if _, err := client.Publish(t.Context(), &sluice.Event{ID: id, Topic: "orders", Payload: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
	}
	type order struct{ N int }
	got := make(chan order, 10)
	subscribe(t, client, "g", sluice.JSON(func(_ context.Context, m *sluice.Message, o order) error {
		got <- o
		return nil
	}))
	if o := <-got; o.N != 17 {
		t.Errorf("got %+v", o)
	}
	testkit.Eventually(t, "the one is acked, and the other is given up", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return sidecar.Acked("orders", "g") == 1 && dead > 0
	})
	if _, err := sluice.Decode[int](&sluice.Event{ID: "b", Binary: true, Payload: []byte("1")}); err == nil {
		t.Error("bytes were decoded as JSON")
	}
}

// A nil argument is an error at once, and no panic later.
func TestNil(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	if _, err := client.Subscribe(t.Context(), "orders", "g", nil); !errors.Is(err, sluice.ErrNil) {
		t.Errorf("a handler that is nil: %v", err)
	}
	if _, err := client.Publish(t.Context(), nil); !errors.Is(err, sluice.ErrNil) {
		t.Errorf("an event that is nil: %v", err)
	}
	if err := client.Publisher().Publish(t.Context(), nil, func(sluice.Receipt, error) {}); !errors.Is(err, sluice.ErrNil) {
		t.Errorf("an event that is nil: %v", err)
	}
	if err := client.Publisher().Publish(t.Context(), eventOf("orders", "1"), nil); !errors.Is(err, sluice.ErrNil) {
		t.Errorf("a callback that is nil: %v", err)
	}
	if _, err := sluice.Dial(t.Context(), sidecar.URL, sluice.WithLogger(nil)); !errors.Is(err, sluice.ErrNil) {
		t.Errorf("a logger that is nil: %v", err)
	}
}
