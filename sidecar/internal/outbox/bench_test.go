package outbox

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/internal/pause"
)

// BenchmarkDrain is how fast documents are drained by a publisher that takes no time. On a server
// without indexes it depends on the size of the backlog.
func BenchmarkDrain(b *testing.B) {
	for _, drainers := range []int{1, 3} {
		b.Run(fmt.Sprint(drainers), func(b *testing.B) {
			a := newApp(b)
			var all []*member
			for i := range drainers {
				all = append(all, a.startIn(fmt.Sprint("node-", i)))
			}
			a.until("the shards are to be shared", func() bool {
				shards := 0
				for _, r := range all {
					shards += r.Stats().Shards
				}
				return shards == Shards
			})
			const backlog = 2000
			n := 0
			for b.Loop() {
				b.StopTimer()
				docs := many(n, backlog)
				n += backlog
				if _, err := a.coll.DeleteMany(context.Background(), bson.D{}); err != nil {
					b.Fatal(err)
				}
				a.insert(docs...)
				b.StartTimer()
				for {
					a.log.mu.Lock()
					stored, changed := len(a.log.events), a.log.changed
					a.log.mu.Unlock()
					if stored == n {
						break
					}
					<-changed
				}
				for published := int64(0); published < int64(n); {
					published = 0
					for _, r := range all {
						published += r.Stats().Published
					}
					pause.For(context.Background(), 5*time.Millisecond)
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "documents/s")
		})
	}
}

// counting dials connections, and counts the messages that are written to them: one for each
// command.
type counting struct{ messages *atomic.Int64 }

func (c counting) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return countedConn{conn, c}, err
}

type countedConn struct {
	net.Conn
	counting
}

func (c countedConn) Write(b []byte) (int, error) {
	c.messages.Add(1)
	return c.Conn.Write(b)
}

// BenchmarkIdle is how many commands a drainer sends while there is nothing to do. Each iteration
// takes a second.
func BenchmarkIdle(b *testing.B) {
	a := newApp(b)
	var commands atomic.Int64
	r := a.start(func(c *Config) {
		c.Lease = 10 * time.Second
		c.Dialer = counting{&commands}
	})
	a.until("it is to be at work", func() bool { return r.Stats().Shards == Shards })
	a.insert(keyed("x", "t", "", 0))
	a.untilStatus(statusDone, 1)
	pause.For(context.Background(), 3*pollMax) // until it is at its ease
	commands.Store(0)
	b.ResetTimer()
	for range b.N {
		pause.For(context.Background(), time.Second)
	}
	b.ReportMetric(float64(commands.Load())/b.Elapsed().Seconds(), "commands/s")
}
