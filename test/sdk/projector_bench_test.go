package sdk_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// BenchmarkRun projects a full topic: an operation is an event, from the log into the collection.
func BenchmarkRun(b *testing.B) {
	for _, keys := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			coll, _ := newCollection(b)
			client := dialURL(b, startSidecar(b, sluicetest.Options{}).URL)
			events := make([]sluice.Event, b.N)
			for i := range events {
				events[i] = sluice.Event{Topic: projectedTopic, Key: fmt.Sprint("k", i%keys), Payload: fmt.Appendf(nil, `{"city":"city %d"}`, i)}
			}
			for len(events) > 0 {
				n := min(len(events), 500)
				if _, err := client.PublishBatch(b.Context(), events[:n]); err != nil {
					b.Fatal(err)
				}
				events = events[n:]
			}
			cfg := configOf(coll)
			done, all := atomic.Int64{}, make(chan struct{})
			cfg.Observer.Applied = func(events, _ int, _ time.Duration) {
				if done.Add(int64(events)) == int64(b.N) {
					close(all)
				}
			}
			b.ResetTimer()
			startProjector(b, client, cfg)
			<-all
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
