package quota_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/controlplane/quotatest"
)

// exchange hands each server the others' documents, every 500 ms until stop is closed, as control
// planes of one store do.
func exchange(servers map[string]*quotatest.Server, cutOff func(name string) bool, stop <-chan struct{}) {
	documents := map[string][]byte{}
	for {
		for name, s := range servers {
			if doc := s.Export(); !cutOff(name) {
				documents[name] = doc
				if err := s.Merge(name, documents); err != nil {
					panic(err)
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(500 * time.Millisecond / time.Duration(len(servers))):
			}
		}
	}
}

// Two control planes share one rate; the load moves from the sidecars of one to those of the other.
func TestControlPlanesShareARate(t *testing.T) {
	const rate, burst = 200, 100
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(0, 0, 5*time.Millisecond)
		f.stopServer()
		f.tune(rate, burst)
		stop, servers := make(chan struct{}), map[string]*quotatest.Server{}
		var ends []func()
		networks := map[string]*network{"a": newNetwork(f.network.delay), "b": newNetwork(f.network.delay)}
		for name, n := range networks {
			f.network = n
			servers[name] = f.serve(true)
			ends = append(ends, f.stopServer)
		}
		exchanged := make(chan struct{})
		go func() {
			defer close(exchanged)
			exchange(servers, func(string) bool { return false }, stop)
		}()
		for i := range 4 {
			f.network = networks[[]string{"a", "b"}[i%2]]
			f.add()
		}
		time.Sleep(4 * time.Second)
		set := func(loads ...float64) {
			for i, s := range f.sidecars {
				s.load.Store(&load{perSecond: loads[i], batch: 1})
			}
			time.Sleep(14 * time.Second)
		}
		set(400, 0, 400, 0)
		set(200, 200, 200, 200)
		set(0, 400, 0, 400)
		set(300, 10, 0, 0)
		close(stop)
		<-exchanged
		f.stopServer = func() {
			for _, end := range ends {
				end()
			}
		}
		f.close()
		f.sort()
		shared := f.accepted(0)
		if got, most := excess(shared, rate), burst+slack(rate); got > most {
			t.Errorf("%.1f more than rate × time were accepted, at most %.1f are allowed", got, most)
		}
		for i := range 4 {
			from := 4*time.Second + time.Duration(i)*14*time.Second + 4*time.Second
			got := within(shared, from, from+10*time.Second)
			t.Logf("part %d: %d of %d in 10 s", i, got, 10*rate)
			if float64(got) < 0.9*10*rate {
				t.Errorf("part %d: only %d of %d were accepted", i, got, 10*rate)
			}
		}
	})
}
