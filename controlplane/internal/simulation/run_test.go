package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/controlplane/internal/store/mongostore"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

const (
	members     = 3
	tellEvery   = 500 * time.Millisecond // signs of life
	forgetAfter = 10 * time.Second       // of one that is gone
	settling    = 30 * time.Second       // for all to be equal again
	settled     = 3 * time.Second        // since each has looked whether there is more
	tooLong     = 6 * time.Hour
)

// run is one schedule that runs.
type run struct {
	plan   *plan
	weak   func(store.Store) store.Store // what a test has put into the store of each; nil: nothing
	set    *mongomodel.Set
	logger *slog.Logger
	logged *bytes.Buffer // guarded by the logger
	planes []*place
	over   chan struct{}

	mu       sync.Mutex
	order    int // one count over all that is seen
	changes  []*change
	states   map[int64]string // what a revision was to the first who saw it
	told     []*told
	problems []string
	troubles map[*trouble]bool // faults of requests, under way
	dead     map[string]bool   // lives, as the set calls them
	final    []store.Commit    // the chain in the end
	present  []store.PresenceDoc
}

// trouble is a fault of requests while it is under way.
type trouble struct {
	fault
	dice dice
}

// place is where a control plane runs, one life after the other.
type place struct {
	run    *run
	number int

	mu   sync.Mutex
	life *life // nil: none runs
	next int
}

// life is one process of a control plane.
type life struct {
	place   *place
	name    string // in the signs of life, and to the set
	store   *mongostore.Store
	catalog *catalog.Catalog
	ctx     context.Context
	end     context.CancelFunc
	work    sync.WaitGroup
	told    *told
}

// told is what one life put of itself. Documents are numbers that rise; the last one is below zero.
type told struct {
	name string
	last int       // the number of the newest document
	gone time.Time // when it was answered OK that it leaves; zero: it was not
}

// result is what came of a run.
type result struct {
	problems []string
	changes  int
	revision int64
	trace    []byte
}

func runPlan(t *testing.T, p *plan, weak func(store.Store) store.Store) (res result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		stuck := time.AfterFunc(tooLong, func() { panic(fmt.Sprintf("the schedule of seed %d does not come to its end", p.seed)) })
		defer stuck.Stop()
		r := &run{plan: p, weak: weak, logged: &bytes.Buffer{}, over: make(chan struct{}), states: map[int64]string{},
			troubles: map[*trouble]bool{}, dead: map[string]bool{}}
		r.logger = slog.New(slog.NewTextHandler(r.logged, nil))
		r.set = mongomodel.New(mongomodel.Options{Members: members, Seed: p.seed, Polling: true, Fault: r.meet})
		r.work(t)
		r.set.Close()
		r.check()
		res = result{problems: r.problems, changes: len(r.changes)}
		if n := len(r.final); n > 0 {
			res.revision = r.final[n-1].Revision
		}
		if len(r.problems) > 0 {
			var trace bytes.Buffer
			r.set.WriteTrace(&trace)
			trace.Write(r.logged.Bytes())
			res.trace = trace.Bytes()
		}
	})
	return res
}

func (r *run) work(t *testing.T) {
	for i := range r.plan.planes {
		r.planes = append(r.planes, &place{run: r, number: i})
		r.planes[i].start()
	}
	var apps, faults sync.WaitGroup
	for i, w := range r.plan.writers {
		apps.Go(func() { r.write(i, w) })
	}
	for _, f := range r.plan.faults {
		faults.Go(func() { r.strike(f) })
	}
	time.Sleep(r.plan.lasts)
	faults.Wait()
	for _, p := range r.planes {
		p.start()
	}
	apps.Wait()
	time.Sleep(time.Minute + settling) // late requests have come
	r.compare()
	for _, p := range r.planes {
		p.stop(false)
	}
	s, err := r.open("stock", 0)
	require.NoError(t, err)
	defer s.Close()
	for revision := int64(0); ; {
		page, err := s.After(context.Background(), revision)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		r.final = append(r.final, page...)
		revision = page[len(page)-1].Revision
	}
	if r.present, err = s.List(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func (r *run) open(link string, timeout time.Duration) (*mongostore.Store, error) {
	url := r.set.URI() + "&serverMonitoringMode=poll"
	if !r.plan.retries {
		url += "&retryWrites=false"
	}
	return mongostore.Open(mongostore.Options{URL: url, Name: link, Timeout: timeout, Dialer: r.set.Dialer(link)})
}

// start begins a life, unless one runs.
func (p *place) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life != nil {
		return
	}
	name := fmt.Sprintf("p%d/%d", p.number, p.next)
	p.next++
	s, err := p.run.open(name, 0)
	if err != nil {
		p.run.problem("open: %v", err)
		return
	}
	l := &life{place: p, name: name, store: s, told: &told{name: name}}
	l.ctx, l.end = context.WithCancel(context.Background())
	p.run.mu.Lock()
	p.run.told = append(p.run.told, l.told)
	p.run.mu.Unlock()
	p.life = l
	l.work.Go(l.run)
}

// run is a life until it ends.
func (l *life) run() {
	var commits store.Store = l.store
	if weak := l.place.run.weak; weak != nil {
		commits = weak(commits)
	}
	for l.ctx.Err() == nil {
		c, err := catalog.Open(l.ctx, catalog.Config{Store: commits, Logger: l.place.run.logger})
		if err == nil {
			l.place.mu.Lock()
			l.catalog = c
			l.place.mu.Unlock()
			l.work.Go(func() { _ = c.Run(l.ctx) }) // it returns none
			l.work.Go(func() { l.watch(c) })
			break
		}
		pause.For(l.ctx, time.Second)
	}
	var alive store.Alive
	for n := 1; pause.For(l.ctx, tellEvery); n++ {
		l.tell(l.ctx, n)
		asked := time.Now()
		docs, err := l.store.List(l.ctx)
		if err != nil {
			continue
		}
		l.place.run.heard(l.name, docs, asked)
		now := time.Now()
		alive.Of(docs, now)
		for self, beat := range alive.Gone(now, forgetAfter) {
			_ = l.store.Remove(l.ctx, self, beat) // it is tried again
		}
	}
}

// heard looks for control planes that have left, and are back. For a while one that was primary may
// say how it was before.
func (r *run) heard(who string, docs []store.PresenceDoc, asked time.Time) {
	const stale = 30 * time.Second
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.told {
		for _, d := range docs {
			if d.Self == x.name && !x.gone.IsZero() && asked.Sub(x.gone) > stale && string(d.Doc) != "-1" {
				r.problems = append(r.problems, fmt.Sprintf("%s hears %s of %s, which has left", who, d.Doc, x.name))
			}
		}
	}
}

// tell puts the n-th document.
func (l *life) tell(ctx context.Context, n int) (ok bool) {
	l.place.run.mu.Lock()
	l.told.last = n
	l.place.run.mu.Unlock()
	return l.store.Put(ctx, l.name, []byte(fmt.Sprint(n))) == nil
}

// watch notes the states that come into force.
func (l *life) watch(c *catalog.Catalog) {
	for last := int64(-1); ; {
		s, changed := c.Watch()
		if s.Revision < last {
			l.place.run.problem("%s goes back from revision %d to %d", l.name, last, s.Revision)
		}
		last = s.Revision
		l.place.run.saw(l.name, s)
		select {
		case <-changed:
		case <-l.ctx.Done():
			return
		}
	}
}

// saw notes what a revision is to somebody.
func (r *run) saw(who string, s *catalog.State) {
	text, err := json.Marshal(s.Entries)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch first, known := r.states[s.Revision]; {
	case err != nil:
		r.problems = append(r.problems, err.Error())
	case !known:
		r.states[s.Revision] = string(text)
	case first != string(text):
		r.problems = append(r.problems, fmt.Sprintf("revision %d is %s to %s, and was %s", s.Revision, text, who, first))
	}
}

// stop ends the life that runs: in order, or at once.
func (p *place) stop(kill bool) {
	p.mu.Lock()
	l := p.life
	p.life = nil
	p.mu.Unlock()
	if l == nil {
		return
	}
	if kill {
		p.run.mu.Lock()
		p.run.dead[l.name] = true
		p.run.mu.Unlock()
	}
	l.end()
	l.work.Wait()
	if !kill {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		ok := l.tell(ctx, -1)
		cancel()
		if ok {
			p.run.mu.Lock()
			l.told.gone = time.Now()
			p.run.mu.Unlock()
		}
	}
	_ = l.store.Close() // the server may not be there
}

// running is the life that runs, with its catalog; nil: none does.
func (p *place) running() (*life, *catalog.Catalog) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil || p.life.catalog == nil {
		return nil, nil
	}
	return p.life, p.life.catalog
}

// compare holds the control planes against each other once all is quiet.
func (r *run) compare() {
	revision := int64(-1)
	for i, p := range r.planes {
		_, c := p.running()
		switch {
		case c == nil:
			r.problem("p%d does not run in the end", i)
		case c.Unread() > settled:
			r.problem("p%d has not read the store for %v in the end", i, c.Unread())
		case revision >= 0 && c.State().Revision != revision:
			r.problem("p%d is at revision %d in the end, and another at %d", i, c.State().Revision, revision)
		default:
			revision = c.State().Revision
		}
	}
}

// strike brings a fault about, and mends it when its time is over.
func (r *run) strike(f fault) {
	time.Sleep(f.at)
	p := r.planes[f.plane]
	switch f.kind {
	case loseRequests, loseAnswers, late, isolate:
		t := &trouble{f, newDice(f.seed, 2)}
		r.mu.Lock()
		r.troubles[t] = true
		r.mu.Unlock()
		time.Sleep(f.for_)
		r.mu.Lock()
		delete(r.troubles, t)
		r.mu.Unlock()
	case partMember:
		r.set.Isolate(f.member)
		time.Sleep(f.for_)
		for i := range members {
			if i != f.member {
				r.set.Join(fmt.Sprintf("m%d", i), fmt.Sprintf("m%d", f.member))
			}
		}
	case killMember:
		r.set.Kill(f.member)
		time.Sleep(f.for_)
		r.set.Restart(f.member)
	case stepdown:
		if i := r.set.Primary(); i >= 0 {
			r.set.StepDown(i)
		}
	case stopPlane, killPlane:
		p.stop(f.kind == killPlane)
		time.Sleep(f.for_)
		p.start()
	}
}

// meet decides what happens to a request.
func (r *run) meet(q mongomodel.Request) (f mongomodel.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dead[q.From] {
		f.LoseRequest = true
		return f
	}
	for t := range r.troubles {
		if !strings.HasPrefix(q.From, fmt.Sprintf("p%d/", t.plane)) || t.kind != isolate && !t.dice.chance(t.percent) {
			continue
		}
		f.Silent = t.dice.chance(50)
		switch t.kind {
		case loseRequests, isolate:
			f.LoseRequest = true
		case loseAnswers:
			f.LoseAnswer = true
		case late:
			f.Late = t.by
		}
	}
	return f
}

func (r *run) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// policyOf is a policy that tells by its rate which change made it.
func policyOf(name string, n int) policy.Policy {
	p, err := policy.ParsePolicy(fmt.Appendf(nil, `{"name":%q,"publish":{"rate":%d}}`, name, 1+n))
	if err != nil {
		panic(err)
	}
	return p
}
