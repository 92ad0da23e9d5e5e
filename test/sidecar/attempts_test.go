package sidecar

import (
	"context"
	"net/http"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestAttemptsOverRestarts delivers one event over and over: a kill counts as an attempt, a
// graceful stop does not, and the last attempt leads to the dead letter topic.
func TestAttemptsOverRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := testkit.StartSidecar(t, dir)
	first := subscribeOne(t, p, "a", "g")
	post(t, p.URL()+"/v1/topics/a/events", `{"n":1}`, http.StatusCreated)
	first.wantAttempt(t, 1)

	p.Kill()
	first.conn.Close()
	p = testkit.StartSidecar(t, dir)
	second := subscribeOne(t, p, "a", "g")
	second.wantAttempt(t, 2)

	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	require.NoError(t, p.Stop(ctx))
	second.conn.Close()
	p = testkit.StartSidecar(t, dir)
	third := subscribeOne(t, p, "a", "g")
	third.wantAttempt(t, 2)

	p.Kill()
	third.conn.Close()
	p = testkit.StartSidecar(t, dir)
	dead := subscribeOne(t, p, "a.dlq", "undertaker")
	fourth := subscribeOne(t, p, "a", "g")
	fourth.wantAttempt(t, 3)
	fourth.conn.Close() // the last of 3 attempts
	letter := dead.wantAttempt(t, 1)
	for name, want := range map[string]string{"sluice-dlq-group": "g", "sluice-dlq-attempts": "3", "sluice-dlq-reason": "connection closed"} {
		if got, _ := letter.Headers.Get(name); got != want {
			t.Errorf("dead letter: %s is %q, want %q", name, got, want)
		}
	}
	if string(letter.Payload) != `{"n":1}` {
		t.Errorf("dead letter: payload %s", letter.Payload)
	}
	dead.conn.Close()
}

// consumer is one connection with one subscription.
type consumer struct {
	conn       *sluice.Conn
	deliveries chan wire.Delivery
}

func subscribeOne(t *testing.T, p *testkit.Sidecar, topic, group string) *consumer {
	t.Helper()
	conn, err := sluice.DialConn(t.Context(), p.URL(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	c := &consumer{conn: conn, deliveries: make(chan wire.Delivery, 10)}
	attempts := 3
	_, err = conn.Subscribe(t.Context(), topic, group, &wire.SubscribeOptions{From: wire.FromEarliest, MaxAttempts: &attempts},
		func(ds []wire.Delivery) {
			for _, d := range ds {
				c.deliveries <- d
			}
		})
	require.NoError(t, err)
	return c
}

// wantAttempt waits for the next delivery.
func (c *consumer) wantAttempt(t *testing.T, want int) wire.Event {
	t.Helper()
	select {
	case d := <-c.deliveries:
		if d.Attempt != want {
			t.Fatalf("event %s came as attempt %d, want %d", d.Event.ID, d.Attempt, want)
		}
		return d.Event
	case <-time.After(testkit.Patience):
		t.Fatalf("no event came, want attempt %d", want)
	}
	panic("unreachable")
}
