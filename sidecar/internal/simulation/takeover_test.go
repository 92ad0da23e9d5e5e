package simulation

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/require"
)

var takeoversFlag = flag.Int("takeovers", 4, "how often TestTakeover ends a sidecar in each way")

// TestTakeover measures how long partitions have no new owner after their sidecar is stopped,
// killed or frozen, or killed together with one of the sidecars that watch it.
func TestTakeover(t *testing.T) {
	const sidecars = 5
	for _, c := range []struct {
		what string
		most time.Duration
		end  func(m, other *machine)
	}{
		{"SIGTERM", 2 * time.Second, func(m, _ *machine) { m.stop() }},
		{"SIGKILL", 3*lease/2 + 3*time.Second, func(m, _ *machine) { m.take().kill() }},
		{"SIGSTOP", 3*lease/2 + 3*time.Second, func(m, _ *machine) { m.pause() }},
		{"SIGKILL, and of a watcher", 3*lease/2 + 3*time.Second, func(m, other *machine) {
			m.take().kill()
			other.take().kill()
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &plan{Seed: 1, Sidecars: sidecars, Members: 3, Measured: true, Topics: []topicPlan{{Name: "t0", Partitions: 16}},
					Groups: []groupPlan{{Topic: "t0", Name: "g0", AckTimeout: 30_000, Attempts: 100}}}
				for i := range sidecars {
					p.Consumers = append(p.Consumers, consumerPlan{Seed: uint64(i), Sidecar: i, Window: 100})
				}
				r := newRun(p)
				r.startApplications()
				log, err := mongolog.Open(mongolog.Options{URL: r.set.URI() + "&serverMonitoringMode=poll", NodeID: "watch", Logger: r.logger,
					Dialer: r.set.Client("watch").Dialer})
				require.NoError(t, err)
				// owned reports whether one of these sidecars has a partition, or a partition has
				// no owner.
				owned := func(names ...string) bool {
					epochs, err := log.LatestEpochs(context.Background(), "t0", "g0")
					return err != nil || len(epochs) < 16 || slices.ContainsFunc(epochs, func(e eventlog.Epoch) bool {
						return e.Released || slices.Contains(names, e.Owner[:strings.IndexByte(e.Owner, '/')])
					})
				}
				var all []time.Duration
				random := newDice(1, 9)
				for i := range *takeoversFlag {
					time.Sleep(time.Minute + time.Duration(random.Int64N(int64(lease))))
					m, other := r.machines[i%sidecars], r.machines[(i+1)%sidecars]
					names := []string{m.name}
					if strings.Contains(c.what, "watcher") {
						names = append(names, other.name)
					}
					began := time.Now()
					c.end(m, other)
					for owned(names...) && time.Since(began) < time.Minute {
						time.Sleep(50 * time.Millisecond)
					}
					all = append(all, time.Since(began))
					m.resume()
					r.start(m)
					r.start(other)
				}
				slices.Sort(all)
				t.Logf("median %v, worst of %d %v", all[len(all)/2].Round(10*time.Millisecond), len(all), all[len(all)-1].Round(10*time.Millisecond))
				if all[len(all)-1] > c.most {
					t.Errorf("the worst is %v, want %v", all[len(all)-1], c.most)
				}
				_ = log.Close()
				r.stopApplications()
				report(t, p, r.finish())
			})
		})
	}
}
