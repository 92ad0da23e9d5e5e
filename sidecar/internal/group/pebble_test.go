package group

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/test/require"
)

// TestOnTheEmbeddedLog takes a group through a failure and two restarts on the log that a sidecar
// has: attempts, acks and marks are still there.
func TestOnTheEmbeddedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		life := func(f func(log *pebblelog.Log, join func() *client, m *Manager)) {
			t.Helper()
			log, err := pebblelog.Open(pebblelog.Options{Dir: "data", FS: fs, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			w := &world{t: t}
			eff := policy.Defaults()
			w.policy.Store(&eff)
			w.m = NewManager(Config{
				Context: context.Background(), Log: log, Tails: tail.New(tail.DefaultBounds()),
				Policy: func(string) *policy.Effective { return w.policy.Load() }, DeadLetters: &fakeDeadLetters{},
				Metrics: telemetry.Discard(), Roster: roster.Alone("node"), Logger: slog.New(slog.DiscardHandler), Bounds: DefaultBounds(),
			})
			f(log, func() *client { return w.join(exactlyOnce) }, w.m)
			w.stop()
			require.NoError(t, log.Close())
		}
		life(func(log *pebblelog.Log, join func() *client, _ *Manager) {
			if _, err := log.EnsureTopic(t.Context(), topic, 1); err != nil {
				t.Fatal(err)
			}
			var batch []*eventlog.Record
			for i := range 5 {
				rec := record(fmt.Sprint("e", i), fmt.Sprint("k", i%2))
				rec.Topic, rec.AcceptedAt = topic, time.Now().UnixMilli()
				rec.Payload = []byte("{}")
				batch = append(batch, rec)
			}
			for _, o := range log.Append(t.Context(), topic, 0, batch) {
				if o.Err != nil {
					t.Fatal(o.Err)
				}
			}
			c := join()
			c.wants("e0/1 e1/1")
			c.ack("e1")
			c.wants("e3/1")
			c.leave(Disconnected)
		})
		life(func(_ *pebblelog.Log, join func() *client, m *Manager) {
			c := join()
			c.wants("e0/2 e3/2")
			if !c.ack("e0").ok() {
				t.Error("refused")
			}
			c.wants("e2/1")
		})
		life(func(_ *pebblelog.Log, join func() *client, m *Manager) {
			c := join()
			c.wants("e2/1 e3/2")
			require.NoError(t, m.Seek(t.Context(), topic, "g", wire.SubscribeOptions{From: wire.FromEarliest}))
			synctest.Wait()
			c.wants("e2/1 e3/1")
		})
	})
}
