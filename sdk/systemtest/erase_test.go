package systemtest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/mongotest"
	"github.com/sluice-bus/sluice/internal/sidecartest"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// TestErasedElsewhere: what one sidecar erases, another one that has it in
// memory for its group does not deliver any more.
func TestErasedElsewhere(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	db := mongotest.Shared(t)
	store := []string{"--store", db.URI(db.NewDatabase(t)), "--lease", "3s"}
	a, b := sidecartest.Start(t, t.TempDir(), store...), sidecartest.Start(t, t.TempDir(), store...)
	h := &admin.HTTP{AppURL: a.URL()}
	client := dial(ctx, t, b)
	got := make(chan string, 100)
	release := make(chan struct{})
	_, err := client.Subscribe(ctx, topic, "billing", func(_ context.Context, m *sluice.Message) error {
		got <- m.Event.ID
		if m.Event.ID == "p0" {
			<-release // the key's others wait for it, in the sidecar's memory
		}
		return nil
	}, option.FromEarliest(), option.Concurrency(10))
	if err != nil {
		t.Fatal(err)
	}
	publish := func(id, key string) {
		t.Helper()
		if _, err := h.Publish(ctx, &sluice.Event{Topic: topic, ID: id, Key: key, Payload: json.RawMessage(`1`)}); err != nil {
			t.Fatal(err)
		}
	}
	publish("p0", "person")
	if id := <-got; id != "p0" {
		t.Fatalf("got %s", id)
	}
	publish("p1", "person")
	publish("o1", "other")
	if id := <-got; id != "o1" {
		t.Fatalf("got %s", id)
	}
	until(ctx, t, "the other sidecar has read all", func() bool {
		info, err := (&admin.HTTP{AppURL: b.URL()}).GroupInfo(ctx, topic, "billing")
		return err == nil && info.Lag == 2
	})
	if n, err := h.DeleteKey(ctx, topic, "person"); err != nil || n != 2 {
		t.Fatalf("%d %v", n, err)
	}
	until(ctx, t, "the other sidecar has let go of it", func() bool {
		info, err := (&admin.HTTP{AppURL: b.URL()}).GroupInfo(ctx, topic, "billing")
		return err == nil && info.Lag == 0
	})
	close(release)
	publish("o2", "person") // behind them, under their key
	select {
	case id := <-got:
		if id != "o2" {
			t.Errorf("%s was delivered after it was erased", id)
		}
	case <-time.After(patience):
		t.Error("nothing comes any more")
	}
	if err := h.DeleteTopic(ctx, topic); wire.AsError(err).Code != wire.InUse {
		t.Errorf("a topic that is in use elsewhere: %v", err)
	}
}
