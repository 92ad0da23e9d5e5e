package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// The fleet-wide limit of these tests.
const fleetRate, fleetBurst = 100, 100

var fleetPolicy = fmt.Sprintf(`{"publish":{"rate":%d,"burst":%d,"scope":"fleet"}}`, fleetRate, fleetBurst)

// slack is how many more events than the burst and rate × time may be accepted, as the control
// plane's package quota documents.
const slack = fleetRate / 4

// attempt is one publish.
type attempt struct {
	sent, answered time.Duration // since the start
	accepted       bool
}

// crowd publishes through several sidecars at rates that the test sets.
type crowd struct {
	began   time.Time
	rates   []atomic.Int64 // publishes a second, by sidecar
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	attempts []attempt
	by       []int // accepted, by sidecar
	faults   []error
}

func startCrowd(t *testing.T, topic string, sidecars []*member) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &crowd{began: time.Now(), rates: make([]atomic.Int64, len(sidecars)), by: make([]int, len(sidecars)), cancel: cancel}
	for i, m := range sidecars {
		conn, err := sluice.DialConn(ctx, m.URL(), nil)
		require.NoError(t, err)
		c.running.Go(func() {
			defer conn.Close()
			c.publish(ctx, conn, topic, i)
		})
	}
	t.Cleanup(c.end)
	return c
}

// publish sends the due events every few milliseconds, without waiting for answers.
func (c *crowd) publish(ctx context.Context, conn *sluice.Conn, topic string, i int) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	due, last := 0.0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			// After a stall, this process sends only some of the events that it missed.
			due += float64(c.rates[i].Load()) * min(now.Sub(last), 100*time.Millisecond).Seconds()
			last = now
		}
		for ; due >= 1; due-- {
			sent := time.Since(c.began)
			err := conn.PublishAsync(ctx, &wire.Event{Topic: topic, Payload: []byte("1")}, func(_ wire.Receipt, err error) {
				c.note(i, attempt{sent: sent, answered: time.Since(c.began), accepted: err == nil}, err)
			})
			if err != nil {
				return
			}
		}
	}
}

func (c *crowd) note(i int, a attempt, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.by[i]++
	case !isCode(err, wire.RateLimited):
		if !errors.Is(err, sluice.ErrClosed) { // else it is the end of the test
			c.faults = append(c.faults, err)
		}
		return
	}
	c.attempts = append(c.attempts, a)
}

// load sets the rates, lets them go on for a while, and returns when that began and ended.
func (c *crowd) load(t *testing.T, d time.Duration, rates ...int64) (from, to time.Duration) {
	from = c.turn(rates...)
	pause.For(t.Context(), d)
	return from, time.Since(c.began)
}

// turn sets the rates and returns when that was.
func (c *crowd) turn(rates ...int64) time.Duration {
	for i := range c.rates {
		c.rates[i].Store(rates[i])
	}
	return time.Since(c.began)
}

func (c *crowd) end() {
	c.cancel()
	c.running.Wait()
}

// within counts the publishes that were sent and answered in a window, and so decided in it.
func (c *crowd) within(from, to time.Duration) (accepted, all int) {
	for _, a := range c.attempts {
		if a.sent < from || a.answered > to {
			continue
		}
		all++
		if a.accepted {
			accepted++
		}
	}
	return accepted, all
}

// excess is how many more events than rate × time were accepted, in the worst window within from
// and to; at least zero.
func (c *crowd) excess(from, to time.Duration) float64 {
	var accepted []attempt
	for _, a := range c.attempts {
		if a.accepted && a.sent >= from && a.answered <= to {
			accepted = append(accepted, a)
		}
	}
	slices.SortFunc(accepted, func(a, b attempt) int { return int(a.sent - b.sent) })
	most := 0.0
	var rest []time.Duration // when publishes sent from here on were answered, ascending
	for _, first := range slices.Backward(accepted) {
		at, _ := slices.BinarySearch(rest, first.answered)
		rest = slices.Insert(rest, at, first.answered)
		for n, answered := range rest {
			most = max(most, float64(n+1)-fleetRate*(answered-first.sent).Seconds())
		}
	}
	return most
}

// bounded checks the bound, over windows of any length.
func (c *crowd) bounded(t *testing.T, what string, from, to time.Duration, allowed float64) {
	t.Helper()
	got := c.excess(from, to)
	t.Logf("%s: at most %.1f more than rate × time were accepted in a window; %.1f are allowed", what, got, allowed)
	if got > allowed {
		t.Errorf("%s: %.1f more than rate × time were accepted in a window; at most %.1f are allowed", what, got, allowed)
	}
}

// used checks that 90 % of the rate were used in a window with a higher demand all along.
func (c *crowd) used(t *testing.T, what string, from, to time.Duration) {
	t.Helper()
	part, demanded := c.parts(t, what, from, to)
	if demanded < 1.5 {
		t.Logf("%s: the machine is too busy for this test to publish enough", what)
	} else if part < 0.9 {
		t.Errorf("%s: only %.1f%% of the rate were accepted", what, 100*part)
	}
}

// parts are the accepted and the demanded events of a window, in parts of the rate.
func (c *crowd) parts(t *testing.T, what string, from, to time.Duration) (part, demanded float64) {
	t.Helper()
	accepted, all := c.within(from, to)
	whole := fleetRate * (to - from).Seconds()
	part, demanded = float64(accepted)/whole, float64(all)/whole
	t.Logf("%s: %.1f%% of the rate of %.1f%% demanded, in %v", what, 100*part, 100*demanded, (to - from).Round(time.Millisecond))
	return part, demanded
}

// TestFleetWideLimit moves load between three sidecars, and takes the control plane away.
func TestFleetWideLimit(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	f.put(t, "shared", fleetPolicy)
	for _, m := range f.sidecars {
		eventually(t, m.name+" knows all others", func() bool { return len(peersOf(t, m)) == 2 })
	}
	c := startCrowd(t, "shared", f.sidecars)
	c.load(t, 5*time.Second, 200, 0, 0)
	movedFrom, movedTo := c.load(t, 4*time.Second, 0, 200, 0)
	spreadFrom, spreadTo := c.load(t, 4*time.Second, 70, 70, 70)
	f.Kill()
	_, away := c.load(t, 1600*time.Millisecond, 70, 70, 70) // until the shares have ended
	fallenFrom, fallenTo := c.load(t, 2*time.Second, 70, 70, 70)
	c.end()

	for _, err := range c.faults {
		t.Error(err)
	}
	c.bounded(t, "with the control plane", 0, spreadTo, fleetBurst+slack)
	for from := 2 * time.Second; from+10*time.Second <= spreadTo; from += 500 * time.Millisecond {
		c.used(t, fmt.Sprintf("from %v on", from), from, from+10*time.Second)
	}
	c.parts(t, "the 2 s after all load has moved", movedFrom, movedFrom+2*time.Second)
	c.parts(t, "after that", movedFrom+2*time.Second, movedTo)
	c.parts(t, "the 2 s after it was spread", spreadFrom, spreadFrom+2*time.Second)
	c.parts(t, "after that", spreadFrom+2*time.Second, spreadTo)
	const known = 3
	fallback := known * (fleetBurst/known + 1.0)
	c.bounded(t, "from share to fallback", 0, away, fleetBurst+slack+fallback)
	c.bounded(t, "by the fallback", fallenFrom, fallenTo, fallback)
	if part, _ := c.parts(t, "by the fallback", fallenFrom, fallenTo); part < 0.5 {
		t.Errorf("by the fallback only %.1f%% of the rate were accepted", 100*part)
	}
	t.Logf("accepted in all by sidecar: %v", c.by)
}

func peersOf(t *testing.T, m *member) []struct{} {
	t.Helper()
	var status struct{ Peers []struct{} }
	m.status(t, &status)
	return status.Peers
}
