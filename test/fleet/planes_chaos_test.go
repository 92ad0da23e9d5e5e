package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const (
	counted = "counted" // the topic whose policies count up
	told    = "told"    // the topic of the events
)

// badDay is how long the faults of one round go on. make soak has the time to wait for the longest ones.
func badDay() time.Duration {
	if _, soaking := testkit.SoakTime(); soaking {
		return 20 * time.Second
	}
	return 8 * time.Second
}

// chaos is three control planes on one store, and three sidecars that may reach any of them: two on
// one store of events, and one with its own.
type chaos struct {
	planes   []*plane
	toStore  []*faultproxy.Proxy // from each control plane
	frozen   []bool
	dead     []bool
	toEvents *faultproxy.Proxy
	sidecars []*watched

	mu       sync.Mutex
	put      int             // the highest burst that was asked for
	accepted map[string]bool // ids of events
	problems []string
	whole, partial, probes, puts, spooled,
	refused int
}

// watched is a sidecar whose enforced policies the test follows.
type watched struct {
	*member
	way  *way
	to   []string                   // where it leads
	life atomic.Pointer[admin.HTTP] // nil: it is down

	seen int // the highest burst that it has enforced; of its watcher alone
}

// TestControlPlanesOnABadDay kills, freezes and cuts off control planes, and kills sidecars, while
// policies change and events are published. No sidecar goes back to an earlier policy. No replay of
// the fleet that is called whole lacks an event. In the end all have the last policy.
func TestControlPlanesOnABadDay(t *testing.T) {
	t.Parallel()
	testkit.Rounds(t, badDayOfControlPlanes)
}

func badDayOfControlPlanes(t *testing.T, seed uint64) {
	c := newChaos(t)
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i, s := range c.sidecars {
		working.Go(func() { c.watch(ctx, s) })
		working.Go(func() { c.publish(ctx, s) })
		working.Go(func() { c.replay(ctx, c.sidecars[(i+1)%len(c.sidecars)]) })
	}
	changing, settle := context.WithCancel(ctx)
	var changes sync.WaitGroup
	for _, p := range c.planes {
		api := p.api
		changes.Go(func() { c.change(changing, api) })
	}
	c.disturb(t, rand.New(rand.NewPCG(seed, 1)))
	settle()
	changes.Wait()
	last := c.put + 1
	within(t, 2*patience, "the last change", func() bool { return c.putBurst(ctx, c.planes[0].api, last) == nil })
	for _, s := range c.sidecars {
		within(t, 2*patience, s.name+" is at the last policy", func() bool { burst, ok := probe(ctx, s.life.Load()); return ok && burst == last })
	}
	cancel()
	working.Wait()
	for _, s := range c.sidecars {
		// Sidecars keep the peers that they know for 15 s after a control plane has started.
		within(t, 3*patience, "a whole replay through "+s.name, func() bool { return c.replayOnce(t.Context(), s) })
	}
	for _, s := range c.sidecars {
		c.refused += refusals(s)
	}
	t.Logf("%d changes, %d responses refused for their revision, %d looks at what is enforced, %d replays were whole and %d not, "+
		"%d of %d events were spooled",
		c.puts, c.refused, c.probes, c.whole, c.partial, c.spooled, len(c.accepted))
	for _, problem := range c.problems {
		t.Error(problem)
	}
}

func newChaos(t *testing.T) *chaos {
	db := mongotest.Shared(t)
	control, events := db.NewDatabase(t), db.NewDatabase(t)
	c := &chaos{frozen: make([]bool, 3), dead: make([]bool, 3), toEvents: faultproxy.New(t, db.Addr()), accepted: map[string]bool{}}
	var addresses []string
	for i := range c.frozen {
		c.toStore = append(c.toStore, faultproxy.New(t, db.Addr()))
		p := startPlane(t, "--store", db.URIVia(c.toStore[i].Addr(), control), "--name", fmt.Sprint("p", i), "--store-timeout", "2s")
		c.planes, addresses = append(c.planes, p), append(addresses, p.XDS())
	}
	c.planes[0].put(t, "*", unlimited)
	require.NoError(t, c.putBurst(t.Context(), c.planes[0].api, 1))
	for i := range 3 {
		s := &watched{to: slices.Concat(addresses[i:], addresses[:i])}
		s.way = newWay(t, s.to...)
		args := []string{"--control-plane", s.way.addr, "--store-timeout", "1s"}
		if i < 2 {
			args = append(args, "--store", db.URIVia(c.toEvents.Addr(), events))
		}
		s.member = startSidecar(t, fmt.Sprint("s", i), args...)
		s.life.Store(s.api)
		c.sidecars = append(c.sidecars, s)
	}
	for _, s := range c.sidecars {
		eventually(t, s.name+" has the first policy and knows the others", func() bool {
			var status struct{ Peers []any }
			s.status(t, &status)
			burst, ok := probe(t.Context(), s.api)
			return ok && burst == 1 && len(status.Peers) == 2
		})
	}
	eventually(t, "the sidecars in the store", func() bool {
		_, missing := c.sidecars[0].replayed(t, told)
		return missing == nil
	})
	pause.For(t.Context(), time.Second) // their entries are written within that
	return c
}

func (c *chaos) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// disturb causes faults, several at a time, and mends all of them in the end.
func (c *chaos) disturb(t *testing.T, random *rand.Rand) {
	type mending struct {
		due time.Time
		do  func()
	}
	var mendings []mending
	mend := func(all bool) {
		mendings = slices.DeleteFunc(mendings, func(m mending) bool {
			if !all && time.Now().Before(m.due) {
				return false
			}
			m.do()
			return true
		})
	}
	for end := time.Now().Add(badDay()); time.Now().Before(end); pause.For(t.Context(), time.Duration(random.IntN(1200))*time.Millisecond) {
		mend(false)
		if do, lasts := c.fault(t, random); do != nil {
			mendings = append(mendings, mending{time.Now().Add(lasts), do})
		}
	}
	mend(true)
}

// fault causes a fault, and returns a function that mends it, and when to; nil: there is nothing to
// mend.
func (c *chaos) fault(t *testing.T, random *rand.Rand) (mend func(), lasts time.Duration) {
	i := random.IntN(len(c.planes))
	p, s := c.planes[i], c.sidecars[i]
	brief := time.Duration(200+random.IntN(1500)) * time.Millisecond
	lasts = 3 * brief
	if random.IntN(3) == 0 {
		lasts = 11 * time.Second // above what a control plane may go without its store
	}
	switch random.IntN(8) {
	case 0: // a control plane is killed
		if c.dead[i] || c.frozen[i] {
			return nil, 0
		}
		c.dead[i] = true
		p.Kill()
		return func() {
			c.toStore[i].Heal() // it does not start without its store
			p.start(t)
			c.dead[i] = false
		}, lasts
	case 1: // it stands still
		if c.dead[i] || c.frozen[i] {
			return nil, 0
		}
		c.frozen[i] = true
		signal(t, p, syscall.SIGSTOP)
		return func() {
			signal(t, p, syscall.SIGCONT)
			c.frozen[i] = false
		}, lasts
	case 2, 3: // it is cut off from its store
		if random.IntN(2) == 0 {
			c.toStore[i].Pause(faultproxy.Both)
		} else {
			c.toStore[i].Down()
		}
		pause.For(t.Context(), brief)
		s.way.leads(s.to...) // to this one first
		return c.toStore[i].Heal, lasts
	case 4, 5: // a sidecar has to connect again, mostly to another one
		s.way.cut()
		return nil, 0
	case 6: // a sidecar is killed
		return c.kill(t, s), brief
	default: // the events' store is away, and a sidecar is killed that spools
		c.toEvents.Down()
		pause.For(t.Context(), brief)
		mend := c.kill(t, s)
		c.toEvents.Up()
		return mend, 2 * brief
	}
}

func (c *chaos) kill(t *testing.T, s *watched) (mend func()) {
	if s.life.Swap(nil) == nil {
		return nil
	}
	s.Kill()
	c.refused += refusals(s)
	return func() {
		s.start(t)
		s.life.Store(s.api)
	}
}

// refusals counts how often a sidecar has refused an older policy, in this life.
func refusals(s *watched) int { return strings.Count(s.Log(), ", below ") }

func signal(t *testing.T, p *plane, s syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(p.PID(), s))
}

// change puts policies that count up, through one control plane, until ctx ends.
func (c *chaos) change(ctx context.Context, api *admin.ControlPlane) {
	for ctx.Err() == nil {
		c.mu.Lock()
		c.put++
		next := c.put
		c.mu.Unlock()
		if c.putBurst(ctx, api, next) == nil {
			c.mu.Lock()
			c.puts++
			c.mu.Unlock()
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// putBurst puts the policy with this burst, unless a higher one is there: an earlier request may
// come late.
func (c *chaos) putBurst(ctx context.Context, api *admin.ControlPlane, burst int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	when := admin.Condition{Absent: true}
	switch now, err := api.Policy(ctx, counted); {
	case err == nil:
		var document struct{ Publish struct{ Burst int } }
		if err := json.Unmarshal(now.Document, &document); err != nil {
			return err
		}
		if document.Publish.Burst >= burst {
			return errors.New("a later one is there")
		}
		when = admin.Condition{Version: now.Version}
	case !isCode(err, wire.NotFound):
		return err
	}
	_, err := api.PutPolicy(ctx, counted, json.RawMessage(fmt.Sprintf(`{"publish":{"rate":1,"burst":%d}}`, burst)), when)
	return err
}

// probe returns the burst that a sidecar enforces, if it answers.
func probe(ctx context.Context, api *admin.HTTP) (burst int, ok bool) {
	if api == nil {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	batch := slices.Repeat([]wire.Event{{Topic: counted, Payload: []byte("1")}}, 1000)
	_, err := api.PublishBatch(ctx, counted, batch)
	if err == nil {
		return 0, true
	}
	found := overBurst.FindStringSubmatch(err.Error())
	if found == nil {
		return 0, false
	}
	burst, err = strconv.Atoi(found[1])
	return burst, err == nil
}

// watch follows the policies that a sidecar enforces, through all its lives.
func (c *chaos) watch(ctx context.Context, s *watched) {
	for ctx.Err() == nil {
		if burst, ok := probe(ctx, s.life.Load()); ok {
			if burst < s.seen {
				c.problem("%s enforces %d after %d", s.name, burst, s.seen)
			}
			s.seen = max(s.seen, burst)
			c.mu.Lock()
			c.probes++
			c.mu.Unlock()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// publish publishes to a sidecar until ctx ends.
func (c *chaos) publish(ctx context.Context, s *watched) {
	for n := 0; ctx.Err() == nil; n++ {
		if api := s.life.Load(); api != nil {
			id := fmt.Sprintf("%s-%d", s.name, n)
			answer, cancel := context.WithTimeout(ctx, 5*time.Second)
			receipt, err := api.Publish(answer, &wire.Event{Topic: told, ID: id, Payload: []byte("1")})
			cancel()
			if err == nil {
				c.mu.Lock()
				c.accepted[id] = true
				if receipt.Spooled {
					c.spooled++
				}
				c.mu.Unlock()
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// replay replays the fleet through a sidecar until ctx ends.
func (c *chaos) replay(ctx context.Context, s *watched) {
	for ctx.Err() == nil {
		c.replayOnce(ctx, s)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// replayOnce reports whether the answer says that it is whole. If so, it checks that the answer has
// all events accepted before.
func (c *chaos) replayOnce(ctx context.Context, s *watched) bool {
	api := s.life.Load()
	if api == nil {
		return false
	}
	c.mu.Lock()
	before := maps.Clone(c.accepted)
	c.mu.Unlock()
	got, err := exported(ctx, api.ReplayURL)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.partial++
		return false
	}
	c.whole++
	lacking := 0
	example := ""
	for id := range before {
		if !got[id] {
			lacking, example = lacking+1, id
		}
	}
	if lacking > 0 {
		c.problems = append(c.problems, fmt.Sprintf("%s calls a replay whole that lacks %d of %d events, %s among them", s.name, lacking,
			len(before), example))
	}
	return true
}

// exported is the ids of the fleet's history.
func exported(ctx context.Context, url string) (map[string]bool, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/export?scope=fleet&topic="+told, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	ids := map[string]bool{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		e, err := codec.ParseEvent(lines.Bytes())
		if err != nil {
			return nil, err
		}
		ids[e.ID] = true
	}
	return ids, lines.Err()
}
