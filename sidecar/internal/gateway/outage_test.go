package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/test/require"
)

// pipes is a listener whose connections are in memory, so that time in a bubble goes on while they
// are quiet.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.ended) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7070} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.ended:
		return nil, io.ErrClosedPipe
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// consumed is an application's record of its events.
type consumed struct {
	mu      sync.Mutex
	effects map[string]int
	last    map[string]int // by key
	at      map[string]time.Duration
	began   time.Time
}

// consume publishes ten events of each of a hundred keys, and handles them with the SDK and all
// settings at their defaults. away says for how long the effect of a key fails. consume returns
// once the group has no lag.
func consume(t *testing.T, away func(key string) time.Duration) *consumed {
	t.Helper()
	const keys, each = 100, 10
	ln := newPipes()
	s := gatewaytest.Start(t, gatewaytest.Setup{Policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0}}]`, Listener: ln})
	client, err := sluice.Dial(t.Context(), "http://127.0.0.1:7070", sluice.WithDialer(ln.dial),
		sluice.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer client.Close()
	for i := range keys * each {
		e := &sluice.Event{Topic: "orders", ID: fmt.Sprintf("k%d-%d", i%keys, i/keys), Key: fmt.Sprint("k", i%keys), Payload: []byte("1")}
		if _, err := client.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	c := &consumed{effects: map[string]int{}, last: map[string]int{}, at: map[string]time.Duration{}, began: time.Now()}
	if _, err := client.Subscribe(t.Context(), "orders", "billing", func(_ context.Context, m *sluice.Message) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if time.Since(c.began) < away(m.Event.Key) {
			return errors.New("the database is away")
		}
		var n int
		if _, err := fmt.Sscanf(m.Event.ID, m.Event.Key+"-%d", &n); err != nil {
			t.Error(err)
		}
		if n > 0 && n != c.last[m.Event.Key]+1 {
			t.Errorf("%s had its effect after number %d of its key", m.Event.ID, c.last[m.Event.Key])
		}
		c.last[m.Event.Key] = n
		c.effects[m.Event.ID]++
		c.at[m.Event.Key] = time.Since(c.began)
		return nil
	}, option.FromEarliest(), option.Concurrency(4)); err != nil {
		t.Fatal(err)
	}
	for {
		time.Sleep(time.Second)
		info, err := s.Groups.Info(t.Context(), "orders", "billing")
		require.NoError(t, err)
		if info.Lag == 0 {
			break
		}
		if time.Since(c.began) > 2*time.Hour {
			t.Fatalf("after %v %d events have not had their effect", time.Since(c.began), info.Lag)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, n := range c.effects {
		if n != 1 {
			t.Errorf("%s had its effect %d times", id, n)
		}
	}
	if len(c.effects) != keys*each {
		t.Errorf("%d of %d events had their effect", len(c.effects), keys*each)
	}
	if infos, err := s.Log.Topics(t.Context()); err != nil || len(infos) != 1 {
		t.Errorf("topics %v, %v: there are dead letters", infos, err)
	}
	return c
}

// TestDatabaseAwayForTenMinutes: by default no event becomes a dead letter, and the order of keys
// is kept.
func TestDatabaseAwayForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		consume(t, func(string) time.Duration { return 10 * time.Minute })
	})
}

// TestAKeyThatFailsHoldsUpNoOther: a failing key takes only one of the handlers that may run at
// once.
func TestAKeyThatFailsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := consume(t, func(key string) time.Duration {
			if strings.HasPrefix(key, "k1") && len(key) == 2 {
				return 10 * time.Minute
			}
			return 0
		})
		for key, at := range c.at {
			if key != "k1" && at > 10*time.Second {
				t.Errorf("the events of %s took %v", key, at)
			}
		}
	})
}
