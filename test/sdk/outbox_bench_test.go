package sdk_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/mongo/outbox"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// BenchmarkLatency measures the time from a publish, or from the beginning of a transaction with an
// insert into the outbox, to the event's delivery to a subscriber, one event at a time.
func BenchmarkLatency(b *testing.B) {
	a := newApp(b)
	p := a.sidecar(b.TempDir())
	conn, err := sluice.DialConn(b.Context(), p.URL(), nil)
	require.NoError(b, err)
	defer conn.Close()
	came := make(chan string, 100)
	_, err = conn.Subscribe(b.Context(), "orders", "", &wire.SubscribeOptions{AutoAck: true}, func(ds []wire.Delivery) {
		for _, d := range ds {
			came <- d.Event.ID
		}
	})
	require.NoError(b, err)
	run := func(name string, send func(e wire.Event) error) {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				time.Sleep(6 * time.Millisecond) // one connection may publish 200 a second
				began := time.Now()
				e := wire.Event{ID: fmt.Sprint(name, b.N, "-", began.UnixNano(), "-", i), Topic: "orders", Key: "k", Payload: []byte("1")}
				require.NoError(b, send(e))
				for id := ""; id != e.ID; {
					select {
					case id = <-came:
					case <-time.After(patience):
						b.Fatalf("%s has not come", e.ID)
					}
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
	run("publish", func(e wire.Event) error {
		_, err := conn.Publish(b.Context(), &e)
		return err
	})
	run("outbox", func(e wire.Event) error {
		return a.do(func(ctx context.Context) error { return outbox.Insert(ctx, a.outbox, e) })
	})
}
