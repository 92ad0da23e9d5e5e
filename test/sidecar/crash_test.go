package sidecar

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/testkit"
)

const (
	kills      = 4 // of one round
	topic      = "crash.orders"
	groupName  = "billing"
	publishers = 4
	consumers  = 2
	window     = 32 // publishes of one publisher under way
	policies   = `
- name: "*"
  connection: {rate: 0}
  publish: {rate: 0}
  delivery: {max_inflight: 200, max_attempts: 100000, ack_timeout: 2s, backoff: {min: 10ms, max: 50ms}}
`
)

// settleTimeout is how long everything may take to come to rest after the load, on a machine with
// other work.
const settleTimeout = 3 * time.Minute

// clients use one sidecar through all its lives.
type clients struct {
	ledger *ledger
	url    atomic.Pointer[string] // of the present life
	done   chan struct{}          // closed when publishers are to stop
	pace   time.Duration          // between two events of a publisher; 0: none
	late   atomic.Bool            // deliveries may be late, after others of the same event
}

// TestKilledUnderLoad publishes and consumes while the sidecar is killed with SIGKILL at random
// moments and started again on the same folder.
func TestKilledUnderLoad(t *testing.T) { testkit.Rounds(t, killUnderLoad) }

func killUnderLoad(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	file := testkit.Write(t, filepath.Join(dir, "policies.yaml"), policies)
	start := func() *testkit.Sidecar {
		return testkit.StartSidecar(t, filepath.Join(dir, "data"), "--policies", file)
	}

	s := &clients{ledger: newLedger(), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var publishing, consuming sync.WaitGroup
	p := start()
	s.use(p)
	for i := range publishers {
		publishing.Go(func() { s.publish(ctx, i) })
	}
	for range consumers {
		consuming.Go(func() { s.consume(ctx) })
	}
	for range kills {
		pause.For(t.Context(), 300*time.Millisecond+time.Duration(random.IntN(700))*time.Millisecond)
		p.Kill()
		p = start()
		s.use(p)
	}
	close(s.done)
	publishing.Wait()

	if lag := drained(t, p); lag > 0 {
		t.Errorf("%d events are not settled by the group in the end", lag)
	}
	if n := s.ledger.unseen(); n > 0 {
		t.Errorf("%d events that were answered OK never reached the group", n)
	}
	cancel()
	consuming.Wait()

	events := export(t, p)
	s.ledger.checkExport(events, number)
	for _, f := range s.ledger.faults {
		t.Error(f)
	}
	t.Logf("%d events answered OK, %d stored, %d of them delivered more than once", len(s.ledger.receipts), len(events),
		s.ledger.redelivered())
	if len(s.ledger.receipts) < kills {
		t.Errorf("only %d events were accepted: the test has not tested anything", len(s.ledger.receipts))
	}
	stop, cancelStop := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancelStop()
	if err := p.Stop(stop); err != nil {
		t.Errorf("the last life did not stop gracefully: %v", err)
	}
}

func (s *clients) use(p *testkit.Sidecar) {
	url := p.URL()
	s.url.Store(&url)
}

// dial connects to the present life, trying until ctx ends.
func (s *clients) dial(ctx context.Context) *sluice.Conn {
	for ctx.Err() == nil {
		c, err := sluice.DialConn(ctx, *s.url.Load(), nil)
		if err == nil {
			return c
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// idOf names the n-th event of a publisher; every publisher has its own keys.
func idOf(publisher, n int) string { return fmt.Sprintf("%d-%d", publisher, n) }

func keyOf(publisher, n int) string { return fmt.Sprintf("%d/%d", publisher, n%100) }

// number is the reverse of idOf: the stream is the key.
func number(id string) (stream string, n int) {
	publisher, count, _ := strings.Cut(id, "-")
	p, _ := strconv.Atoi(publisher)
	n, _ = strconv.Atoi(count)
	return keyOf(p, n), n
}

// publish sends events pipelined. After every kill it sends the events without an answer again,
// under the same ids and in the same order.
func (s *clients) publish(ctx context.Context, publisher int) {
	next := 0 // the first event without an answer in order
	for {
		select {
		case <-s.done:
			return
		default:
		}
		c := s.dial(ctx)
		if c == nil {
			return
		}
		next = s.publishOn(ctx, c, publisher, next)
		c.Close()
	}
}

// next waits for a publisher's next turn; false: there is none.
func (s *clients) next() bool {
	select {
	case <-s.done:
		return false
	default:
	}
	if s.pace == 0 {
		return true
	}
	select {
	case <-s.done:
		return false
	case <-time.After(s.pace):
		return true
	}
}

// publishOn publishes on one connection until it breaks or the test is done. It returns the first
// event that has no answer.
func (s *clients) publishOn(ctx context.Context, c *sluice.Conn, publisher, from int) int {
	var answered atomic.Int64 // answers come in the order of one connection's publishes per key, not overall
	answered.Store(int64(from))
	got := map[int]bool{}
	for n := from; ; n++ {
		if !s.next() {
			if c.Flush(ctx) != nil {
				return int(answered.Load())
			}
			return n
		}
		if n-int(answered.Load()) > window {
			if c.Flush(ctx) != nil {
				return int(answered.Load())
			}
		}
		e := &wire.Event{ID: idOf(publisher, n), Topic: topic, Key: keyOf(publisher, n), Payload: []byte(`{"n":` + strconv.Itoa(n) + `}`)}
		err := c.PublishAsync(ctx, e, func(r wire.Receipt, err error) {
			var refused *wire.Error
			switch {
			case err == nil:
				s.ledger.accepted(r)
				got[n] = true // callbacks run one after the other
				for got[int(answered.Load())] {
					answered.Add(1)
				}
			case errors.As(err, &refused) && refused.Code != wire.StoreUnavailable:
				s.ledger.mu.Lock()
				s.ledger.fault("event %s was refused: %v", e.ID, err)
				s.ledger.mu.Unlock()
			}
		})
		if err != nil {
			return int(answered.Load())
		}
	}
}

// consume is one member of the group: it acks most events, gives some back, and leaves some to
// their deadline.
func (s *clients) consume(ctx context.Context) {
	for ctx.Err() == nil {
		c := s.dial(ctx)
		if c == nil {
			return
		}
		var sub atomic.Pointer[sluice.ConnSubscription]
		early := make(chan []wire.Delivery, 100) // deliveries that come before Subscribe has returned
		settle := func(ds []wire.Delivery, sub *sluice.ConnSubscription) {
			for _, d := range ds {
				s.settle(sub, d)
			}
		}
		deliver := func(ds []wire.Delivery) {
			for _, d := range ds {
				s.ledger.delivered(d, s.late.Load())
			}
			if on := sub.Load(); on != nil {
				settle(ds, on)
				return
			}
			early <- ds
		}
		on, err := c.Subscribe(ctx, topic, groupName, &wire.SubscribeOptions{From: wire.FromEarliest}, deliver)
		if err == nil {
			sub.Store(on)
			drain(early, func(ds []wire.Delivery) { settle(ds, on) })
			select {
			case <-c.Done():
			case <-ctx.Done():
			}
		}
		c.Close()
	}
}

func drain(early chan []wire.Delivery, settle func([]wire.Delivery)) {
	for {
		select {
		case ds := <-early:
			settle(ds)
		default:
			return
		}
	}
}

// settle decides by the attempt, so that every event is acked in the end.
func (s *clients) settle(sub *sluice.ConnSubscription, d wire.Delivery) {
	id := d.Event.ID
	_, n := number(id)
	switch {
	case d.Attempt == 1 && n%997 == 0:
		return // let the deadline pass
	case d.Attempt == 1 && n%101 == 0:
		_ = sub.NackAsync(nil, sluice.Nack{Reason: "not yet"}, id) // a broken connection gives it back, too
	default:
		_ = sub.AckAsync(func(err error) {
			if err == nil {
				s.ledger.ackedOK(id)
			}
		}, id)
	}
}

// drained waits until the group has settled everything, and returns its lag.
func drained(t *testing.T, p *testkit.Sidecar) (lag int64) {
	t.Helper()
	h := &admin.HTTP{AppURL: p.URL()}
	defer h.CloseIdle()
	for deadline := time.Now().Add(settleTimeout); ; pause.For(t.Context(), 20*time.Millisecond) {
		info, err := h.GroupInfo(t.Context(), topic, groupName)
		late := time.Now().After(deadline)
		if err != nil && (late || !isStoreAway(err)) {
			t.Fatalf("look at the group: %v", err)
		}
		if err == nil && (info.Lag == 0 || late) {
			return info.Lag
		}
	}
}

// isStoreAway reports whether a sidecar has no answer from its store right now. A slow machine may
// cause that, so the caller asks again.
func isStoreAway(err error) bool {
	var refused *wire.Error
	return errors.As(err, &refused) && refused.Code == wire.StoreUnavailable
}

// export returns all stored events. An export that breaks off says so, and is tried again.
func export(t *testing.T, p *testkit.Sidecar) []wire.Event {
	t.Helper()
	h := &admin.HTTP{ReplayURL: p.ReplayURL()}
	defer h.CloseIdle()
	for deadline := time.Now().Add(settleTimeout); ; pause.For(t.Context(), 100*time.Millisecond) {
		events, err := exportOnce(t.Context(), h)
		if err == nil {
			return events
		}
		if time.Now().After(deadline) {
			t.Fatalf("export: %v", err)
		}
		t.Logf("export, to be tried again: %v", err)
	}
}

func exportOnce(ctx context.Context, h *admin.HTTP) (events []wire.Event, err error) {
	for e, err := range h.Export(ctx, sluice.ExportQuery{Topic: topic}) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}
