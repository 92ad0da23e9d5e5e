package bubbletest

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// dialed counts the connections that are open, those of monitors too.
type dialed struct {
	options.ContextDialer
	open atomic.Int64
}

type dialedConn struct {
	net.Conn
	closed func()
}

func (d *dialed) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.ContextDialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.open.Add(1)
	return dialedConn{conn, sync.OnceFunc(func() { d.open.Add(-1) })}, nil
}

func (c dialedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// TestConnections counts the connections of a sidecar on three members: of idle ones that read two
// topics or many, and of a busy one. The busy one appends to as many topics at once as it reads.
// Followers of signals do not hold its appends up, however few connections the URL allows.
func TestConnections(t *testing.T) {
	const monitors = 2 * 3 * 2 // for two clients, on each of three members
	for _, c := range []struct {
		url          string
		topics       int
		idle, busy   int64 // beside monitors
		atLeastTaken int64
	}{
		{"", 2, 2 + 1, 16 + 2, 0},
		{"", 200, 8 + 1, 16 + 2, 14},
		{"maxPoolSize=1&", 200, 8 + 1, 12 + 2, 10},
		{"maxPoolSize=40&minPoolSize=3&", 200, 8 + 1 + 3*3, 40 + 2 + 2*3, 20},
	} {
		t.Run(c.url, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := mongomodel.New(mongomodel.Options{HelloWait: time.Second, Latencies: mongomodel.Measured})
				t.Cleanup(set.Close)
				d := &dialed{ContextDialer: set.Dialer("sidecar")}
				l, err := mongolog.Open(mongolog.Options{
					URL: strings.Replace(set.URI(), "/?", "/"+database+"?"+c.url, 1), Dialer: d, Logger: slog.New(slog.DiscardHandler),
				})
				require.NoError(t, err)
				t.Cleanup(func() { l.Close() })
				f := &follower{log: l, tails: tail.New(tail.DefaultBounds())}
				for i := range c.topics {
					f.watch(topic(i))
				}
				f.follow(t)
				most := int64(0)
				for round := range 5 {
					var appending sync.WaitGroup
					for i := range c.topics {
						appending.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
							defer cancel()
							if _, err := l.EnsureTopic(ctx, topic(i), 1); err != nil {
								t.Errorf("EnsureTopic: %v", err)
								return
							}
							for _, o := range l.Append(ctx, topic(i), 0, eventlogtest.Events(topic(i)+string(rune('a'+round)), 1)) {
								if o.Err != nil {
									t.Errorf("Append: %v", o.Err)
								}
							}
						})
					}
					for range 50 {
						time.Sleep(2 * time.Millisecond)
						most = max(most, d.open.Load()-monitors)
					}
					appending.Wait()
				}
				beat := uint64(0)
				for range 100 { // a sidecar's life goes on for some minutes
					beat++
					require.NoError(t, l.SaveNode(t.Context(), eventlog.Node{ID: "n/1/1", Name: "n", Beat: beat, Lease: 10 * time.Second}))
					time.Sleep(2500 * time.Millisecond)
				}
				idle := d.open.Load() - monitors
				t.Logf("%d topics, %q: beside %d of monitors %d connections while busy, %d while idle", c.topics, c.url, monitors, most, idle)
				if most > c.busy || most < c.atLeastTaken || idle > c.idle {
					t.Errorf("%d connections while busy and %d while idle; want %d and %d at most", most, idle, c.busy, c.idle)
				}
			})
		})
	}
}
