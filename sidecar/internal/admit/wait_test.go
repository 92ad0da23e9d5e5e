package admit_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// waiting lets publishes to w… wait for a minute, those to w.short for five seconds, and all others
// be refused.
const waiting = `[
  {name: "*", publish: {rate: 1, burst: 10}, connection: {rate: 0}},
  {name: "w*", publish: {on_limit: wait, max_wait: 1m}},
  {name: w.short, publish: {max_wait: 5s}},
]`

func TestWaitsForTokens(t *testing.T) {
	full := func(topics ...string) (all []wire.PublishItem) {
		for _, topic := range topics {
			all = append(all, items(topic, 10)...)
		}
		return all
	}
	for _, c := range []struct {
		name    string
		used    []wire.PublishItem
		publish []wire.PublishItem
		takes   time.Duration
		refused wire.Code
	}{
		{"tokens are there", items("w", 9), items("w", 1), 0, ""},
		{"until its tokens are there", full("w"), items("w", 3), 3 * time.Second, ""},
		{"up to max_wait", full("w.short"), items("w.short", 5), 5 * time.Second, ""},
		{"not at all for longer than max_wait", full("w.short"), items("w.short", 6), 0, wire.RateLimited},
		{"for the shortest max_wait of all topics", full("w"), append(items("w", 6), items("w.short", 1)...), 0, wire.RateLimited},
		{"not where one topic says reject", full("w"), append(items("w", 1), items("r", 1)...), 0, wire.RateLimited},
		{"not for more than the burst", full("w"), items("w", 11), 0, wire.BadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := open(t, waiting)
				f.start(t.Context(), c.used...).ok(t)
				began := time.Now()
				a := f.start(t.Context(), c.publish...)
				if took := time.Since(began); took != c.takes {
					t.Errorf("took %v, want %v", took, c.takes)
				}
				switch {
				case c.refused == "":
					a.ok(t)
				case a.err == nil || a.err.Code != c.refused:
					t.Errorf("%v, want %s", a.err, c.refused)
				}
			})
		})
	}
}

func TestTheConnectionsTokensAreWaitedForToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, `[{name: "*", connection: {rate: 1, burst: 1}, publish: {on_limit: wait, max_wait: 1m}}]`)
		began := time.Now()
		for range 3 {
			f.start(t.Context(), items("a", 1)...).ok(t)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("three events took %v, want 2s", took)
		}
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, waiting)
		f.start(t.Context(), items("w", 10)...).ok(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		a := f.start(ctx, items("w", 10)...)
		if a.err == nil || a.err.Code != wire.RateLimited || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want rate_limited after 1s", a.err, time.Since(began))
		}
		if _, events, _ := f.Tokens(f.conn, "w"); events != 1 {
			t.Errorf("%d tokens are left, want the one of that second", events)
		}
	})
}

// Of several that wait for the same tokens, none gets those of another.
func TestWaitersShareTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, waiting)
		f.start(t.Context(), items("w", 10)...).ok(t)
		began := time.Now()
		ends := make(chan time.Duration, 20)
		for range 20 {
			go func() {
				f.start(t.Context(), items("w", 2)...).ok(t)
				ends <- time.Since(began)
			}()
		}
		for i := range 20 {
			if took, least := <-ends, time.Duration(i+1)*2*time.Second; took != least {
				t.Errorf("waiter %d had its tokens after %v, want %v", i, took, least)
			}
		}
	})
}

func TestAChangeOfPoliciesReachesThoseThatWait(t *testing.T) {
	for _, c := range []struct {
		name, policies string
		want           []string
	}{
		{"more is allowed", `[{name: w, publish: {rate: 1000, burst: 10, on_limit: wait, max_wait: 1m}}]`, []string{"ok", "ok"}},
		{"no limit", `[{name: w, publish: {rate: 0}}]`, []string{"ok", "ok"}},
		{"no waiting", `[{name: w, publish: {rate: 1, burst: 10}}]`, []string{"all rate_limited"}},
		{"a smaller burst", `[{name: w, publish: {rate: 1, burst: 1, on_limit: wait, max_wait: 1m}}]`, []string{"all bad_request"}},
		{"a pause", `[{name: w, paused: true}]`, []string{"topic_paused", "topic_paused"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := open(t, `[{name: w, publish: {rate: 0.1, burst: 10, on_limit: wait, max_wait: 10h}}]`)
				f.start(t.Context(), items("w", 10)...).ok(t)
				time.AfterFunc(time.Second, func() { f.current.Swap(parse(t, c.policies)) })
				began := time.Now()
				got := f.publish(t, items("w", 2)...)
				if took := time.Since(began).Round(10 * time.Millisecond); !slices.Equal(got, c.want) || took != time.Second {
					t.Errorf("%q after %v, want %q after 1s", got, took, c.want)
				}
			})
		})
	}
}

// A change retunes the buckets that there are: the tokens stay, up to the new burst, and fill at
// the new rate; also those of connections.
func TestAChangeOfPoliciesRetunesLiveBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, `[{name: "*", connection: {rate: 1, burst: 20}, publish: {rate: 1, burst: 10, bytes_per_second: 1000}}]`)
		f.publish(t, items("a", 8)...)
		f.wantTokens(t, "a", 12, 2, fullBytes-80)
		f.current.Swap(parse(t, `[{name: "*", connection: {rate: 5, burst: 15}, publish: {rate: 3, burst: 100, bytes_per_second: 2000}}]`))
		if got := f.publish(t, items("a", 3)...); got[0] != "all rate_limited" {
			t.Errorf("%q, want the tokens that were there before the change", got)
		}
		f.wantTokens(t, "a", 12, 2, fullBytes-80)
		time.Sleep(time.Second)
		f.wantTokens(t, "a", 15, 5, fullBytes)
	})
}
