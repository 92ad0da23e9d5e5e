package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSchedule(t *testing.T) {
	for _, test := range []struct {
		passed time.Duration
		rate   float64
		bad    bool
	}{
		{0, 2, false}, {30 * time.Second, 16, false}, {time.Minute, 30, true}, {89 * time.Second, 17, true}, {90 * time.Second, 16, false},
		{2 * time.Minute, 2, false}, {6 * time.Minute, 2, true}, {6*time.Minute + 30*time.Second, 16, false},
	} {
		rate, bad := Usual.rate(test.passed), Usual.bad(test.passed)
		if rate < test.rate-1 || rate > test.rate+1 || bad != test.bad {
			t.Errorf("after %v: %v a second, bad: %t; want %v, %t", test.passed, rate, bad, test.rate, test.bad)
		}
	}
}

// TestBadDeployment: what a bad deployment fails is dead, and once it is redriven every order is paid.
func TestBadDeployment(t *testing.T) {
	sidecar := sluicetest.Start(sluicetest.Options{Policies: `[{name: "*", delivery: {max_attempts: 2, backoff: {min: 10ms, max: 20ms}}}]`})
	defer sidecar.Close()
	var said []string
	for bad := 2 * time.Second; ; bad *= 4 { // in which a loaded machine may fail nothing
		said = runBad(t, sidecar.URL, bad)
		if len(said) != 3 || !strings.HasPrefix(said[2], "0 ") || bad > time.Minute {
			break
		}
	}
	if len(said) != 3 || !strings.Contains(said[0], "s no payment succeeds") || !strings.Contains(said[1], "rolled back") ||
		!strings.HasSuffix(said[2], "were redriven: they are delivered to it again.") || strings.HasPrefix(said[2], "0 ") {
		t.Errorf("it says %q", said)
	}
	finish(t, sidecar.URL)
	paid := map[string]bool{}
	for _, e := range sidecar.Events(paymentsTaken) {
		paid[e.CausedBy[0]] = true
	}
	for _, e := range sidecar.Events(ordersPlaced) {
		if !paid[e.ID] {
			t.Errorf("%s is not paid", e.ID)
		}
	}
}

// runBad runs the shop until the dead letters of its first bad deployment are redriven, and returns what it said.
func runBad(t *testing.T, url string, bad time.Duration) (said []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := Run(ctx, []string{url, url}, Schedule{
		Least: 40, Most: 80, Period: time.Second, FirstBad: time.Second, BadEvery: time.Hour, BadFor: bad, RedriveAfter: time.Second,
	}, func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
		if strings.Contains(format, "redriven") {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// finish runs the shop without a bad deployment until all orders are paid for.
func finish(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := &admin.HTTP{AppURL: url}
	defer h.CloseIdle()
	var watcher sync.WaitGroup
	watcher.Go(func() {
		defer cancel()
		for ctx.Err() == nil {
			group, err := h.GroupInfo(ctx, ordersPlaced, "payments")
			page, dlqErr := h.DeadLetters(ctx, ordersPlaced, admin.DeadLetterQuery{Group: "payments"})
			if err == nil && dlqErr == nil && group.Lag == 0 && page.Total == 0 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	never := Schedule{Period: time.Second, FirstBad: time.Hour, BadEvery: time.Hour}
	if err := Run(ctx, []string{url}, never, func(string, ...any) {}); err != nil {
		t.Error(err)
	}
	watcher.Wait()
}
