package group

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// TestFleetKeepsItsPromises lets sidecars of one store join, stop, die, sleep for longer than their
// lease and lose the store, while the members of one group do as they like. It checks every
// delivery: no key overtakes itself, no event comes again after its ack was answered, no event is
// in flight twice, attempts do not fall. In the end every event is settled, and every partition is
// where rendezvous hashing puts it.
func TestFleetKeepsItsPromises(t *testing.T) {
	testFleet(t, false)
}

// TestNothingCountsInAGentleFleet lets members and sidecars come and go in order only, with a
// single attempt for every event: nothing ever becomes a dead letter.
func TestNothingCountsInAGentleFleet(t *testing.T) {
	testFleet(t, true)
}

func testFleet(t *testing.T, gentle bool) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			x := newTrial(t, gentle)
			defer func() { // also after a failure, for goleak
				for _, s := range x.live() {
					s.path.set(func() { s.path.dead = true })
					x.forget(func(c *trialClient) bool { return c.s == s })
					s.kill()
				}
				synctest.Wait()
			}()
			actions := x.actions()
			if gentle {
				for _, rough := range []string{"nack", "disconnect", "kill", "pause", "wake", "store"} {
					delete(actions, rough)
				}
			}
			t.Repeat(actions)
			x.finish()
		})
	})
}

func (x *trial) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"publish":    x.publishSome,
		"publish2":   x.publishSome,
		"ack":        x.ackSome,
		"ack2":       x.ackSome,
		"ack3":       x.ackSome,
		"nack":       x.nackOne,
		"join":       func(t *rapid.T) { x.joinSome(t) },
		"leave":      func(t *rapid.T) { x.leaveOne(t, Unsubscribed) },
		"disconnect": func(t *rapid.T) { x.leaveOne(t, Disconnected) },
		"start":      x.startOne,
		"stop":       x.stopOne,
		"kill":       x.killOne,
		"pause":      x.pauseOne,
		"wake":       x.wakeOne,
		"store":      x.breakOrMend,
		"deaf":       func(t *rapid.T) { x.setDeaf(rapid.Bool().Draw(t, "deaf")) },
		"look":       func(*rapid.T) { x.announceAll() },
		"seek":       x.seekSome,
		"time":       x.passTime,
		"time2":      x.passTime,
		"tick":       x.tick,
		"tick2":      x.tick,
		"tick3":      x.tick,
		"":           func(*rapid.T) { synctest.Wait() },
	}
}

// tick is time for signals to arrive.
func (x *trial) tick(*rapid.T) { time.Sleep(30 * time.Millisecond) }

func (x *trial) passTime(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{20, 300, 1000, 3500, 9000, 14000}).Draw(t, "ms") * time.Millisecond)
}

func (x *trial) publishSome(t *rapid.T) {
	heard := rapid.IntRange(0, 4).Draw(t, "heard") > 0
	for range rapid.IntRange(1, 5).Draw(t, "n") {
		x.ids++
		e := &trialEvent{id: "e" + strconv.Itoa(x.ids), key: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")}
		x.mu.Lock()
		x.events[e.id] = e
		x.keys[e.key] = append(x.keys[e.key], e)
		x.mu.Unlock()
		e.rec = x.publish(e.id, e.key, heard)
	}
}

// someSidecar picks one that can get an answer from the store.
func (x *trial) someSidecar(t *rapid.T) *sidecar {
	var fit []*sidecar
	for _, s := range x.live() {
		if s.path.isFit() {
			fit = append(fit, s)
		}
	}
	return draw(t, fit)
}

func (p *path) isFit() (is bool) {
	p.set(func() { is = p.paused == nil && p.err == nil })
	return is
}

func (x *trial) ackSome(t *rapid.T) {
	c := draw(t, x.clients)
	if c == nil {
		return
	}
	var ids []string
	for _, id := range c.held() {
		if rapid.IntRange(0, 3).Draw(t, id) > 0 {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		x.ack(c, ids)
	}
}

func (x *trial) nackOne(t *rapid.T) {
	c := draw(t, x.clients)
	if c == nil {
		return
	}
	if held := c.held(); len(held) > 0 {
		delay := rapid.SampledFrom([]time.Duration{0, 2 * time.Second}).Draw(t, "delay")
		c.m.Nack([]string{rapid.SampledFrom(held).Draw(t, "event")}, nack("no", &delay), func(error) {})
	}
}

func (x *trial) joinSome(t *rapid.T) {
	if s := x.someSidecar(t); s != nil && len(x.clients) < 6 {
		x.join(s)
	}
}

func (x *trial) leaveOne(t *rapid.T, how Leaving) {
	if c := draw(t, x.clients); c != nil {
		c.m.Close(how)
		x.forget(func(o *trialClient) bool { return o == c })
	}
}

func (x *trial) startOne(t *rapid.T) {
	used := make(map[string]bool)
	for _, s := range x.live() {
		used[s.name] = true
	}
	for i := range 4 {
		if name := "s" + strconv.Itoa(i); !used[name] {
			x.start(name)
			return
		}
	}
}

func (x *trial) stopOne(t *rapid.T) {
	s := x.someSidecar(t)
	if s == nil || len(x.live()) == 1 {
		return
	}
	s.stop()
	x.forget(func(c *trialClient) bool { return c.s == s })
}

func (x *trial) killOne(t *rapid.T) {
	live := x.live()
	if len(live) == 1 {
		return
	}
	s := rapid.SampledFrom(live).Draw(t, "sidecar")
	s.path.set(func() { s.path.dead = true })
	x.forget(func(c *trialClient) bool { return c.s == s })
	s.kill()
}

func (x *trial) pauseOne(t *rapid.T) {
	if s := x.someSidecar(t); s != nil {
		s.path.pause(rapid.Bool().Draw(t, "late"))
	}
}

func (x *trial) wakeOne(t *rapid.T) {
	rapid.SampledFrom(x.live()).Draw(t, "sidecar").path.wake()
}

func (x *trial) breakOrMend(t *rapid.T) {
	err := rapid.SampledFrom([]error{nil, errStore}).Draw(t, "store")
	rapid.SampledFrom(x.live()).Draw(t, "sidecar").path.fail(err)
}

func (x *trial) seekSome(t *rapid.T) {
	s := x.someSidecar(t)
	if s == nil || rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		return
	}
	x.mu.Lock()
	x.seeks++
	for _, e := range x.events {
		e.attempts, e.fate = 0, perhaps // whether it moved already or not
	}
	for _, o := range x.live() {
		if o.path.isPaused() {
			x.behind[o] = true
		}
	}
	x.mu.Unlock()
	if err := s.m.Seek(context.Background(), topic, "g", wire.SubscribeOptions{From: wire.FromEarliest}); err != nil {
		t.Errorf("seek: %v", err)
	}
	synctest.Wait()
	x.mu.Lock()
	for _, e := range x.events {
		if e.fate == perhaps {
			e.fate = unsettled
		}
	}
	x.mu.Unlock()
}

// finish ends all faults and acks every delivery, until none comes.
func (x *trial) finish() {
	x.setDeaf(false)
	for _, s := range x.live() {
		s.path.fail(nil)
		s.path.wake()
	}
	synctest.Wait()
	x.join(x.live()[0])
	time.Sleep(2 * lease)
	synctest.Wait()
	if got, want := x.owners(), x.due(); got != want {
		x.rt.Errorf("owned by %s, want %s", got, want)
	}
	for range 3 * (len(x.events) + 3) {
		x.announceAll()
		synctest.Wait()
		for _, c := range x.clients {
			if held := c.held(); len(held) > 0 {
				x.ack(c, held)
			}
			synctest.Wait()
		}
		if x.lag() == 0 {
			break
		}
		time.Sleep(time.Second)
	}
	synctest.Wait()
	for id, e := range x.events {
		if e.fate == unsettled {
			x.rt.Errorf("%s is lost", id)
		}
	}
	if lag := x.lag(); lag != 0 {
		x.rt.Errorf("lag %d after everything was settled", lag)
	}
}

func (x *trial) lag() int64 { return x.live()[0].info().Lag }
