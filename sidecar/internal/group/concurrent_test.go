package group

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestConcurrentUse calls everything at once, to find data races and deadlocks. In the end every
// event has been acked.
func TestConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const events = 2000
		w := newWorld(t, 4)
		var mu sync.Mutex
		acked := make(map[string]bool)
		consume := func(life time.Duration, how Leaving) {
			inbox := make(chan Delivery, 1000)
			c := w.subscribe(&fakeSink{deliver: func(d Delivery) { inbox <- d }}, earliest, window(20))
			c.Start()
			end := time.After(life)
			for {
				select {
				case d := <-inbox:
					switch rand.IntN(10) {
					case 0:
						delay := 10 * time.Millisecond
						c.Nack([]string{d.Record.ID}, nack("", &delay), func(error) {})
					case 1:
						c.Extend(d.Record.ID, time.Minute)
						fallthrough
					default:
						c.Ack([]string{d.Record.ID}, func(error) {
							mu.Lock()
							defer mu.Unlock()
							acked[d.Record.ID] = true
						})
					}
				case <-end:
					c.Pause()
					c.Close(how)
					return
				}
			}
		}
		var all sync.WaitGroup
		all.Go(func() {
			for i := range events {
				w.log.append(topic, record("e"+strconv.Itoa(i), "k"+strconv.Itoa(i%50)))
				time.Sleep(time.Millisecond)
			}
		})
		for i := range 6 {
			all.Go(func() {
				for j := range 5 {
					consume(time.Duration(100+37*i)*time.Millisecond, Leaving(j%2))
				}
			})
		}
		all.Go(func() {
			for range 50 {
				time.Sleep(20 * time.Millisecond)
				w.info()
				w.m.Stats()
				w.m.PoliciesChanged()
				w.log.locked(func() {
					w.log.saveErr = nil
					if rand.IntN(4) == 0 {
						w.log.saveErr = errStore
					}
				})
			}
			w.log.locked(func() { w.log.saveErr = nil })
		})
		all.Wait()
		consume(time.Hour, Unsubscribed)
		synctest.Wait()
		if dead := len(w.deadLetters.appended); len(acked)+dead < events {
			t.Errorf("%d acked and %d dead letters of %d", len(acked), dead, events)
		}
		if lag := w.info().Lag; lag != 0 {
			t.Errorf("lag %d", lag)
		}
		w.stop()
	})
}
