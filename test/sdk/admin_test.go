package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestTopicsAndGroupsComeAndGo makes and deletes topics and groups, also over the death of the
// sidecar.
func TestTopicsAndGroupsComeAndGo(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { comeAndGo(t) })
	t.Run("shared", func(t *testing.T) {
		db := mongotest.Shared(t)
		comeAndGo(t, "--store", db.URI(db.NewDatabase(t)), "--lease", "3s")
	})
}

func comeAndGo(t *testing.T, store ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	p := testkit.StartSidecar(t, dir, store...)
	h := &admin.HTTP{AppURL: p.URL(), ReplayURL: p.ReplayURL()}
	publish := func() {
		t.Helper()
		for i := range 5 {
			if _, err := h.Publish(ctx, &sluice.Event{Topic: topic, ID: fmt.Sprint("e", i), Key: fmt.Sprint("k", i%2),
				Payload: []byte(`1`)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	holds := func(want int64) {
		t.Helper()
		list, err := h.TopicsWithPrefix(ctx, topic)
		if err != nil || len(list) != 1 || list[0].Events != want {
			t.Fatalf("%+v, %v; want %d events", list, err, want)
		}
	}
	if made, err := h.MakeTopic(ctx, topic); err != nil || !made {
		t.Fatalf("%v %v", made, err)
	}
	publish()
	if n, err := h.DeleteKey(ctx, topic, "k1"); err != nil || n != 2 {
		t.Fatalf("%d %v", n, err)
	}
	if n, err := h.DeleteEvent(ctx, topic, "e0"); err != nil || n != 1 {
		t.Fatalf("%d %v", n, err)
	}
	holds(2)
	p.Kill()
	p = testkit.StartSidecar(t, dir, store...)
	h.AppURL, h.ReplayURL = p.URL(), p.ReplayURL()
	holds(2)
	if plan, err := h.PlanTopicDeletion(ctx, topic); err != nil || plan.Events != 2 {
		t.Fatalf("%+v %v", plan, err)
	}
	require.NoError(t, h.DeleteTopic(ctx, topic))
	p.Kill()
	p = testkit.StartSidecar(t, dir, store...)
	h.AppURL, h.ReplayURL = p.URL(), p.ReplayURL()
	if list, err := h.Topics(ctx); err != nil || len(list) != 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := h.DeleteTopic(ctx, topic); !errors.Is(err, &wire.Error{Code: wire.NotFound}) {
		t.Fatal(err)
	}
	publish() // the ids are free
	holds(5)

	client := dialProcess(ctx, t, p)
	sub, err := client.Subscribe(ctx, topic, "billing", func(context.Context, *sluice.Message) error { return nil }, option.FromEarliest())
	require.NoError(t, err)
	until(ctx, t, "all are acked", func() bool {
		info, err := h.GroupInfo(ctx, topic, "billing")
		return err == nil && info.Lag == 0
	})
	if plan, err := h.PlanSeek(ctx, topic, "billing", admin.Position{From: wire.FromEarliest}); err != nil || plan.Replays != 5 ||
		plan.Skips != 0 {
		t.Errorf("%+v %v", plan, err)
	}
	for name, err := range map[string]error{"topic": h.DeleteTopic(ctx, topic), "group": h.DeleteGroup(ctx, topic, "billing")} {
		if !errors.Is(err, &wire.Error{Code: wire.InUse}) {
			t.Errorf("deleting a %s in use: %v", name, err)
		}
	}
	sub.Drain()
	<-sub.Closed()
	require.NoError(t, h.DeleteGroup(ctx, topic, "billing"))
	if _, err := h.GroupInfo(ctx, topic, "billing"); !errors.Is(err, &wire.Error{Code: wire.NotFound}) {
		t.Errorf("a deleted group: %v", err)
	}
}
