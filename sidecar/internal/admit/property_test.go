package admit_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

var (
	propertyTopics = []string{"a", "b", "c", "lost", "paused"}
	outcomes       = []string{"", "stored", "stored", "duplicate", "conflict", "unavailable", "defect"}
)

func someItem(t *rapid.T, n int) wire.PublishItem {
	it := item(rapid.SampledFrom(propertyTopics).Draw(t, "topic"), rapid.SampledFrom(outcomes).Draw(t, "outcome"))
	if it.Event.ID != "" {
		it.Event.ID += fmt.Sprint("-", n)
	}
	it.Event.Payload = make([]byte, rapid.IntRange(0, 3000).Draw(t, "payload"))
	if rapid.IntRange(0, 9).Draw(t, "bad") == 0 {
		it.Err = wire.Errorf(wire.BadRequest, "bad")
	}
	return it
}

// Only events that were answered OK cost tokens, and every call is answered once, with one result
// per item or one error. The rates are so slow that no token comes back by itself meanwhile; bytes
// may, one a second.
func TestTokensGoneAreEventsAccepted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		connBurst := rapid.IntRange(1, 200).Draw(rt, "connection burst")
		policies := fmt.Sprintf(`[{name: "*", partitions: 2, connection: {rate: 0.000001, burst: %d}}, {name: paused, paused: true}`, connBurst)
		bursts := map[string]int{}
		for _, topic := range propertyTopics[:4] {
			bursts[topic] = rapid.IntRange(1, 100).Draw(rt, topic+" burst")
			policies += fmt.Sprintf(`, {name: %s, publish: {rate: 0.000001, burst: %d, bytes_per_second: 1}}`, topic, bursts[topic])
		}
		bounds := writer.DefaultBounds()
		bounds.PartitionEvents = rapid.IntRange(1, 20).Draw(rt, "partition")
		f, began := newFixture(t, policies+"]", &fakeLog{}, bounds), time.Now()

		var paid int
		events, bytes := map[string]int{}, map[string]int{}
		var answers []answer
		for range rapid.IntRange(1, 8).Draw(rt, "calls") {
			batch := make([]wire.PublishItem, rapid.IntRange(0, 25).Draw(rt, "events"))
			for i := range batch {
				batch[i] = someItem(rt, i)
			}
			a := f.start(t.Context(), batch...)
			answers = append(answers, a)
			if a.err != nil {
				if a.err.Code != wire.RateLimited && a.err.Code != wire.BadRequest {
					rt.Fatal(a.err)
				}
				continue
			}
			results := <-a.results
			if len(results) != len(batch) {
				rt.Fatalf("%d results for %d items", len(results), len(batch))
			}
			for i, r := range results {
				if e := batch[i].Event; r.Err == nil {
					paid++
					events[e.Topic]++
					bytes[e.Topic] += len(e.Payload)
				}
			}
		}
		f.writer.Stop(t.Context())
		for _, a := range answers {
			if len(a.results) != 0 {
				rt.Fatal("a call was answered twice, or refused and answered")
			}
		}
		for _, topic := range propertyTopics[:4] {
			c, e, b := f.Tokens(f.conn, topic)
			gained := int(time.Since(began) / time.Second)
			if connBurst-c != paid || bursts[topic]-e != events[topic] || b < fullBytes-bytes[topic] || b > fullBytes-bytes[topic]+gained {
				rt.Fatalf("topic %s: %d, %d and %d tokens are gone, %d, %d and %d were paid with",
					topic, connBurst-c, bursts[topic]-e, fullBytes-b, paid, events[topic], bytes[topic])
			}
		}
	})
}

// The same from many goroutines at once, whose calls share topics and are settled by several
// partitions.
func TestConcurrentPublishes(t *testing.T) {
	const publishers, calls, burst = 8, 100, 1_000_000
	// So slow that no token comes back by itself while the test runs.
	policies := fmt.Sprintf(`[{name: "*", partitions: 4, connection: {rate: 0}, publish: {rate: 0.000001, burst: %d}}]`, burst)
	bounds := writer.DefaultBounds()
	bounds.PartitionEvents = 20
	f := newFixture(t, policies, &fakeLog{}, bounds)

	var accepted [3]atomic.Int64
	var answers sync.WaitGroup
	var publishing sync.WaitGroup
	for n := range publishers {
		publishing.Go(func() {
			conn := f.NewConnection()
			for call := range calls {
				batch := make([]wire.PublishItem, (n+call)%12)
				topics := make([]int, len(batch))
				for i := range batch {
					topics[i] = (n + call*i) % 3
					id := outcomes[(call+i)%len(outcomes)]
					if id != "" {
						id += fmt.Sprintf("-%d-%d-%d", n, call, i)
					}
					batch[i] = item(propertyTopics[topics[i]], id)
				}
				answers.Add(1) // more than one Done panics
				err := f.Publish(t.Context(), conn, batch, func(results []wire.ResultItem) {
					for i, r := range results {
						if r.Err == nil {
							accepted[topics[i]].Add(1)
						}
					}
					answers.Done()
				})
				if err != nil {
					t.Error(err)
					answers.Done()
				}
			}
		})
	}
	publishing.Wait()
	answers.Wait()
	for i := range accepted {
		n := int(accepted[i].Load())
		if _, events, _ := f.Tokens(f.conn, propertyTopics[i]); n == 0 || burst-events != n {
			t.Errorf("topic %s: %d tokens are gone for %d events", propertyTopics[i], burst-events, n)
		}
	}
}
