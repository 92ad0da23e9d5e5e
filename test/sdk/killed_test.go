package sdk_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const (
	kills      = 3 // of one round
	topic      = "orders"
	group      = "billing"
	publishers = 3
	keys       = 12 // of one publisher
	policies   = `
- name: "*"
  connection: {rate: 0}
  publish: {rate: 0}
  delivery: {max_inflight: 100, max_attempts: 100000, ack_timeout: 2s, backoff: {min: 10ms, max: 50ms}}
`
	// patience is how long everything may take to come to rest, on a machine with other work.
	patience = 2 * time.Minute
)

// TestKilledUnderLoad publishes and consumes through clients that live as long as the test, while
// the sidecar is killed with SIGKILL and started again.
func TestKilledUnderLoad(t *testing.T) { testkit.Rounds(t, killUnderLoad) }

func killUnderLoad(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	file := filepath.Join(dir, "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(policies), 0o600))
	life := func(args ...string) *testkit.Sidecar {
		return testkit.StartSidecar(t, filepath.Join(dir, "data"), append([]string{"--policies", file}, args...)...)
	}
	p := life()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dial := func() *sluice.Client {
		client, err := sluice.Dial(ctx, p.URL(), sluice.WithReplayURL(p.ReplayURL()),
			sluice.WithBackoff(5*time.Millisecond, 100*time.Millisecond))
		require.NoError(t, err)
		return client
	}

	l := newLedger()
	publishing, first, second := dial(), dial(), dial()
	for _, client := range []*sluice.Client{first, second} {
		if _, err := client.Subscribe(ctx, topic, group, l.shared.handle, option.FromEarliest(), option.Concurrency(4)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := first.Subscribe(ctx, topic, "", l.alone.handle, option.FromEarliest()); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range publishers {
		load.Go(func() { l.publish(ctx, publishing, i, rand.New(rand.NewPCG(seed, uint64(1+i))), stop) })
	}
	for range kills {
		select {
		case <-time.After(200*time.Millisecond + time.Duration(random.IntN(400))*time.Millisecond): // the load goes on: that is the test
		case <-ctx.Done():
		}
		p.Kill()
		p = life("--listen", p.Listen, "--replay-listen", p.Replay)
	}
	close(stop)
	load.Wait()

	if err := publishing.Drain(ctx); err != nil {
		t.Fatalf("publishing: %v", err)
	}
	l.await(ctx, t, first)
	for _, client := range []*sluice.Client{first, second} {
		if err := client.Drain(ctx); err != nil {
			t.Errorf("draining: %v", err)
		}
	}
	l.check(ctx, t, p)
	if err := p.Stop(ctx); err != nil {
		t.Errorf("the last life did not stop gracefully: %v", err)
	}
}

// ledger is the test's record of its events. A payload is "publisher-key-number", and its first two
// parts are the event's key.
type ledger struct {
	mu       sync.Mutex
	accepted map[string]int // results by payload
	faults   []string
	shared   *observer // of the group
	alone    *observer // without one
}

func newLedger() *ledger {
	return &ledger{accepted: map[string]int{}, shared: newObserver(), alone: newObserver()}
}

func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) < 20 {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

// publish publishes until stop is closed, and waits for all results.
func (l *ledger) publish(ctx context.Context, client *sluice.Client, publisher int, random *rand.Rand, stop <-chan struct{}) {
	p := client.NewPublisher(option.Window(200, 1<<20))
	var next [keys]int
	event := func() sluice.Event {
		key := random.IntN(keys)
		next[key]++
		name := fmt.Sprintf("%d-%d", publisher, key)
		return sluice.Event{Topic: topic, Key: name, Payload: fmt.Appendf(nil, "%q", fmt.Sprintf("%s-%d", name, next[key]))}
	}
	for pace := time.NewTicker(time.Millisecond); ; {
		select {
		case <-stop:
			pace.Stop()
			if err := p.Flush(ctx); err != nil {
				l.fault("flushing: %v", err)
			}
			p.Close()
			return
		case <-pace.C:
		}
		e := event()
		err := p.Publish(ctx, &e, func(_ sluice.Receipt, err error) { l.result(&e, err) })
		if err != nil {
			l.fault("publishing: %v", err)
		}
	}
}

func (l *ledger) result(e *sluice.Event, err error) {
	if err != nil {
		l.fault("publishing %s: %v", e.Payload, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted[string(e.Payload)]++
}

// await waits until the group has settled everything, and the subscription without a group has seen
// it.
func (l *ledger) await(ctx context.Context, t *testing.T, client *sluice.Client) {
	l.mu.Lock()
	want := len(l.accepted)
	l.mu.Unlock()
	for {
		info, err := client.HTTP().GroupInfo(ctx, topic, group)
		if err == nil && info.Lag == 0 && l.shared.distinct() >= want && l.alone.distinct() >= want {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("of %d events the group has handled %d (lag %d, %v), and the subscription without one %d",
				want, l.shared.distinct(), info.Lag, err, l.alone.distinct())
		}
	}
}

// check compares the published, the stored and the handled events.
func (l *ledger) check(ctx context.Context, t *testing.T, p *testkit.Sidecar) {
	reader := &admin.HTTP{ReplayURL: p.ReplayURL()}
	defer reader.CloseIdle()
	stored := map[string]int{}
	type place struct {
		partition int
		seq       uint64
	}
	places := map[string]place{}
	for e, err := range reader.Export(ctx, sluice.ExportQuery{Topic: topic}) {
		require.NoError(t, err)
		stored[string(e.Payload)]++
		places[string(e.Payload)] = place{e.Partition, e.Seq}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for payload, n := range l.accepted {
		if n != 1 || stored[payload] != 1 {
			t.Errorf("event %s has %d results, and is stored %d times", payload, n, stored[payload])
		}
		key, number := split(payload)
		if number == 1 {
			continue
		}
		before, ok := places[fmt.Sprintf("%q", fmt.Sprintf("%s-%d", key, number-1))]
		if is := places[payload]; ok && (before.partition != is.partition || before.seq >= is.seq) {
			t.Errorf("event %s is at %+v, and the one before it at %+v", payload, is, before)
		}
	}
	if len(stored) != len(l.accepted) {
		t.Errorf("%d events are stored; %d were published", len(stored), len(l.accepted))
	}
	again := l.shared.check(t, "the group")
	if n := l.alone.check(t, "the subscription without a group"); n > 0 {
		t.Errorf("the subscription without a group got %d events again", n)
	}
	for _, f := range l.faults {
		t.Error(f)
	}
	t.Logf("%d events; the group handled %d of them again", len(l.accepted), again)
	if len(l.accepted) < 10*kills {
		t.Errorf("only %d events: the test has not tested anything", len(l.accepted))
	}
}

// split takes a payload apart.
func split(payload string) (key string, number int) {
	text := strings.Trim(payload, `"`)
	at := strings.LastIndexByte(text, '-')
	_, _ = fmt.Sscan(text[at+1:], &number) // the test made it
	return text[:at], number
}

// observer is told of handled events.
type observer struct {
	mu     sync.Mutex
	times  map[string]int // by payload
	last   map[string]int // the highest number by key
	faults []string
}

func newObserver() *observer { return &observer{times: map[string]int{}, last: map[string]int{}} }

func (o *observer) handle(_ context.Context, m *sluice.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	payload := string(m.Event.Payload)
	o.times[payload]++
	if o.times[payload] > 1 {
		return nil
	}
	key, number := split(payload)
	if number != o.last[key]+1 {
		o.faults = append(o.faults, fmt.Sprintf("event %s was handled for the first time behind number %d", payload, o.last[key]))
	}
	o.last[key] = max(o.last[key], number)
	return nil
}

func (o *observer) distinct() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.times)
}

func (o *observer) check(t *testing.T, who string) (again int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.times {
		again += n - 1
	}
	for i, f := range o.faults {
		if i == 10 {
			t.Errorf("%s: and %d more", who, len(o.faults)-i)
			break
		}
		t.Errorf("%s: %s", who, f)
	}
	return again
}
