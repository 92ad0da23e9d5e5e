package sdk_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestErasedElsewhere: one sidecar erases events that another one has in memory for its group. That
// one does not deliver them any more.
func TestErasedElsewhere(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	db := mongotest.Shared(t)
	store := []string{"--store", db.URI(db.NewDatabase(t)), "--lease", "3s"}
	a, b := testkit.StartSidecar(t, t.TempDir(), store...), testkit.StartSidecar(t, t.TempDir(), store...)
	h := &admin.HTTP{AppURL: a.URL()}
	client := dialProcess(ctx, t, b)
	got := make(chan string, 100)
	release := make(chan struct{})
	_, err := client.Subscribe(ctx, topic, "billing", func(_ context.Context, m *sluice.Message) error {
		got <- m.Event.ID
		if m.Event.ID == "p0" {
			<-release // the key's others wait for it, in the sidecar's memory
		}
		return nil
	}, option.FromEarliest(), option.Concurrency(10))
	require.NoError(t, err)
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

// TestErasedInASpool: an erasure also erases events in another sidecar's spool. They come into the
// log neither as events nor as dead letters.
func TestErasedInASpool(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	db := mongotest.Shared(t)
	name := db.NewDatabase(t)
	way := faultproxy.New(t, db.Addr())
	a := testkit.StartSidecar(t, t.TempDir(), "--store", db.URI(name))
	b := testkit.StartSidecar(t, t.TempDir(), "--store", db.URIVia(way.Addr(), name), "--store-timeout", "2s")
	here, there := &admin.HTTP{AppURL: a.URL(), ReplayURL: a.ReplayURL()}, &admin.HTTP{AppURL: b.URL()}
	publish := func(h *admin.HTTP, id, key string) wire.Receipt {
		t.Helper()
		r, err := h.Publish(ctx, &sluice.Event{Topic: topic, ID: id, Key: key, Payload: json.RawMessage(`"secret"`)})
		require.NoError(t, err)
		return r
	}
	publish(here, "o1", "other")
	publish(there, "o2", "other")
	way.Down()
	for _, id := range []string{"p1", "p2", "x"} {
		if r := publish(there, id, "person"); !r.Spooled {
			t.Fatalf("%s: %+v", id, r)
		}
	}
	publish(there, "o3", "other")
	if n, err := here.DeleteKey(ctx, topic, "person"); err != nil || n != 0 {
		t.Fatalf("%d %v", n, err)
	}
	publish(here, "p3", "person") // later than the deletion
	publish(here, "x", "person")  // and under an id that waits there
	way.Up()
	var got []string
	until(ctx, t, "the spool is in the log", func() bool {
		got = nil
		for e, err := range here.ReplayEvents(ctx, admin.ReplayQuery{Topic: topic}) {
			require.NoError(t, err)
			got = append(got, e.ID)
		}
		return slices.Contains(got, "o3")
	})
	slices.Sort(got)
	if want := []string{"o1", "o2", "o3", "p3", "x"}; !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
	if letters, err := here.DeadLetters(ctx, topic, admin.DeadLetterQuery{}); err == nil && letters.Total != 0 {
		t.Errorf("%d dead letters", letters.Total)
	}
}
