package sdk_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestAReaderAloneMissesNothing kills the sidecar under a subscription without a group. The
// subscription gets every event once, for any ts of the events.
func TestAReaderAloneMissesNothing(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p := testkit.StartSidecar(t, data)
	client, err := sluice.Dial(t.Context(), p.URL(), sluice.WithBackoff(5*time.Millisecond, 100*time.Millisecond))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	var mu sync.Mutex
	var got []string
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(got) }
	if _, err := client.Subscribe(t.Context(), topic, "", func(_ context.Context, m *sluice.Message) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m.Event.ID)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var want []string
	publish := func(n int) {
		t.Helper()
		for range n {
			e := sluice.Event{ID: fmt.Sprintf("e%03d", len(want)), Topic: topic, Payload: []byte("1"),
				TS: time.Now().Add(-time.Duration(len(want)) * time.Hour).UnixMilli()}
			if _, err := client.HTTP().Publish(t.Context(), &e); err != nil {
				t.Fatal(err)
			}
			want = append(want, e.ID)
		}
	}
	publish(20)
	testkit.Eventually(t, "the first events came", func() bool { return count() == len(want) })
	for range 3 {
		addr := p.Listen
		p.Kill()
		p = testkit.StartSidecar(t, data, "--listen", addr)
		publish(20) // some of them before the subscription is there again
		testkit.Eventually(t, "all events came", func() bool { return count() >= len(want) })
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d events came: %v", len(got), got)
	}
}
