package group

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func fairness(by, weights string) func(*policy.Effective) {
	return func(e *policy.Effective) {
		e.Delivery.Fairness = policy.Fairness{By: policy.Grouping(by), Weights: policy.Weights(weights)}
	}
}

// publishOf stores n events of a tenant, with ids "tenant-number".
func (w *world) publishOf(tenant string, n int) {
	for range n {
		w.ids++
		rec := record(fmt.Sprintf("%s-%d", tenant, w.ids), "")
		rec.Headers = wire.Headers{{Name: "tenant", Value: tenant}}
		w.log.append(topic, rec)
	}
}

// works has a client work on each event and ack it, and notes how long each event waited for that
// since its publish.
func (w *world) works(most int, each time.Duration) *waits {
	ws := &waits{longest: map[string]time.Duration{}, sum: map[string]time.Duration{}, n: map[string]int{}}
	var c *client
	sink := &fakeSink{deliver: func(d Delivery) {
		time.AfterFunc(each, func() {
			tenant, _, _ := strings.Cut(d.Record.ID, "-")
			ws.done(tenant, time.Since(time.UnixMilli(d.Record.TS)))
			c.Ack([]string{d.Record.ID}, func(error) {})
		})
	}}
	c = w.subscribe(sink, window(most), earliest)
	c.Start()
	synctest.Wait()
	return ws
}

// waits is how long events of each tenant waited until they were done.
type waits struct {
	mu      sync.Mutex
	longest map[string]time.Duration
	sum     map[string]time.Duration
	n       map[string]int
	order   []string
}

func (w *waits) done(tenant string, after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.longest[tenant] = max(w.longest[tenant], after)
	w.sum[tenant] += after
	w.n[tenant]++
	w.order = append(w.order, tenant)
}

// tenants are the tenants of the events that are done, in order.
func (w *waits) tenants() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.order)
}

func (w *waits) mean(tenant string) time.Duration { return w.sum[tenant] / time.Duration(w.n[tenant]) }

// Each of ten tenants uses a tenth of a group's capacity. Then one of them has 1,000 times as many
// events as the others. With fairness, the others wait at most twice as long as before, as far as
// the look-ahead reaches. Without it they wait until that one is done.
func TestTenantsWaitNoLongerThanTwice(t *testing.T) {
	const others, flood = 9, 9000
	run := func(t *testing.T, flood int, by string) *waits {
		var ws *waits
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.setPolicy(fairness(by, ""))
			ws = w.works(10, 100*time.Millisecond) // 100 a second
			w.publishOf("greedy", flood)
			synctest.Wait()
			for range 9 { // 10 a second of each, which is its share
				for tenant := range others {
					w.publishOf(fmt.Sprint(tenant), 1)
					time.Sleep(100 * time.Millisecond / others)
				}
			}
			time.Sleep(5 * time.Minute)
			w.stop()
		})
		return ws
	}
	alone, beside, unfair := run(t, 0, "header:tenant"), run(t, flood, "header:tenant"), run(t, flood, "")
	for tenant := range others {
		name := fmt.Sprint(tenant)
		if beside.n[name] == 0 || beside.longest[name] > 2*alone.longest[name] || beside.mean(name) > 2*alone.mean(name) {
			t.Errorf("tenant %s waits %v, %v at the most; alone %v and %v", name, beside.mean(name), beside.longest[name], alone.mean(name),
				alone.longest[name])
		}
		if unfair.longest[name] < time.Minute {
			t.Errorf("tenant %s waits %v without fairness", name, unfair.longest[name])
		}
	}
	t.Logf("tenant 0 waits %v, %v at the most; alone %v and %v, without fairness %v and %v",
		beside.mean("0"), beside.longest["0"], alone.mean("0"), alone.longest["0"], unfair.mean("0"), unfair.longest["0"])
	if n := beside.n["greedy"]; n != flood {
		t.Errorf("%d events of the greedy one are done", n)
	}
	if last := slices.Index(beside.tenants(), "greedy"); last > 20 {
		t.Errorf("the greedy one has to wait for %d of the others", last)
	}
}

// Events behind the look-ahead wait until it reaches them.
func TestFairAsFarAsTheLookAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.m.cfg.Bounds.Lookahead, w.m.cfg.Bounds.FetchEvents = 1000, 100
		w.setPolicy(fairness("header:tenant", ""))
		w.publishOf("greedy", 900)
		w.publishOf("near", 1)
		w.publishOf("greedy", 1000)
		w.publishOf("far", 1)
		ws := w.works(1, time.Millisecond)
		time.Sleep(time.Minute)
		if at := slices.Index(ws.tenants(), "near"); at > 2 {
			t.Errorf("the near one has to wait for %d events", at)
		}
		if at := slices.Index(ws.tenants(), "far"); at < 700 || at > 905 {
			t.Errorf("the far one has to wait for %d events", at)
		}
		w.stop()
	})
}

func TestWeights(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.setPolicy(fairness("header:tenant", `{"b":3,"c":0.5}`))
		for _, tenant := range []string{"a", "b", "c", ""} {
			w.publishOf(tenant, 200)
		}
		ws := w.works(1, time.Millisecond)
		time.Sleep(110 * time.Millisecond)
		got := map[string]int{}
		for _, tenant := range ws.tenants()[:110] {
			got[tenant]++
		}
		for tenant, want := range map[string]int{"a": 20, "b": 60, "c": 10, "": 20} {
			if n := got[tenant]; n < want-1 || n > want+1 {
				t.Errorf("tenant %q got %d of 110, want %d", tenant, n, want)
			}
		}
		time.Sleep(time.Minute)
	})
}

// A tenant that had nothing to do for a while has saved up nothing, and has nothing to make up for.
func TestIdleTenantsSaveNothing(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.setPolicy(fairness("header:tenant", ""))
		w.publishOf("a", 300)
		ws := w.works(1, time.Millisecond)
		time.Sleep(100*time.Millisecond + time.Microsecond)
		w.publishOf("b", 100)
		time.Sleep(100 * time.Millisecond)
		got := 0
		for _, tenant := range ws.tenants()[100:200] {
			if tenant == "b" {
				got++
			}
		}
		if got < 48 || got > 51 {
			t.Errorf("b got %d of 100 after a was alone", got)
		}
		time.Sleep(time.Minute)
	})
}

// Looking ahead takes no more than half of the memory of all connections. Beyond that a group
// fetches only as many events as its members have room for.
func TestLookingAheadLeavesMemoryToOthers(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.memory = budget.New(budget.Bounds{Memory: 1 << 20}).Of("")
		w.start()
		w.setPolicy(fairness("header:tenant", ""))
		c := w.join(window(1))
		const n = 5000
		w.publishOf("a", n)
		synctest.Wait()
		if used := w.memory.Used(); used < 1<<19 || used > 1<<19+1<<18 {
			t.Errorf("%d bytes are taken", used)
		}
		for range n {
			c.mu.Lock()
			ids := []string{c.got[len(c.got)-1].Record.ID}
			c.got = c.got[:0]
			c.mu.Unlock()
			w.memory.Take(1 << 16) // others need some meanwhile
			c.Ack(ids, func(error) {})
			synctest.Wait()
			w.memory.Give(1 << 16)
		}
		if info := w.info(); info.Lag != 0 {
			t.Errorf("lag %d", info.Lag)
		}
	})
}

// Fairness comes and goes with the policy, and loses nothing.
func TestFairnessFollowsThePolicy(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.join(window(1))
		w.publishOf("a", 3)
		w.publishOf("b", 2)
		synctest.Wait()
		c.wants("a-1/1")
		w.setPolicy(fairness("header:tenant", ""))
		c.ack("a-1")
		c.wants("a-2/1") // the first of the flows
		c.ack("a-2")
		c.wants("b-4/1")
		w.setPolicy(fairness("", ""))
		c.ack("b-4")
		c.wants("a-3/1")
		w.setPolicy(fairness("header:tenant", `{"b":2}`))
		c.ack("a-3")
		c.wants("b-5/1")
		c.ack("b-5")
		if info := w.info(); info.Lag != 0 {
			t.Errorf("lag %d", info.Lag)
		}
	})
}

// BenchmarkConsumeFairly is BenchmarkConsumeAndAck with fairness between a greedy tenant and a
// hundred others, of which the log has one event in ten.
func BenchmarkConsumeFairly(b *testing.B) {
	for _, by := range []string{"", "header:tenant"} {
		b.Run("by="+by, func(b *testing.B) {
			benchConsume(b, fairness(by, ""), nil, func(i int, rec *eventlog.Record) {
				tenant := "greedy"
				if i%10 == 0 {
					tenant = fmt.Sprint("tenant-", i/10%100)
				}
				rec.Headers = wire.Headers{{Name: "tenant", Value: tenant}}
			})
		})
	}
}
