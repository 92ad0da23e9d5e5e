package simulation

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

var (
	manyFlag = flag.Int("many", 300, "how many schedules TestSchedules runs")
	seedFlag = flag.Uint64("seed", 0, "run the schedule of this seed alone, not several of fresh ones")
	planFlag = flag.String("plan", "", "run the schedule of this file, as TestPlan")
)

// repeated says how to run one schedule again.
func repeated(p *plan) string {
	if len(p.Redrivers) > 0 || p.schedules() {
		return "go test ./sidecar/internal/simulation -run TestPlan -plan with plan.json of that folder"
	}
	return fmt.Sprintf("go test ./sidecar/internal/simulation -run TestSchedules -seed %d", p.Seed)
}

// report fails the test with the violations of a run, and says where the rest of it is.
func report(t *testing.T, p *plan, res result) {
	t.Helper()
	if len(res.violations)+len(res.failures) == 0 {
		return
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("simulation-%d-", p.Seed))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "trace"), res.trace, 0o644))
	require.NoError(t, p.write(filepath.Join(dir, "plan.json")))
	var told strings.Builder
	for _, v := range res.violations {
		fmt.Fprintf(&told, "%v\n", v)
	}
	for _, f := range res.failures {
		fmt.Fprintf(&told, "the simulation: %s\n", f)
	}
	t.Errorf("the schedule of seed %d breaks promises:\n%sall commands, logs and what applications saw: %s\nagain: %s",
		p.Seed, told.String(), dir, repeated(p))
}

// tally counts over several runs.
type tally struct {
	schedules, publishes, deliveries, removed, forgotten, virtual, faults atomic.Int64
}

func (c *tally) count(p *plan, res result) {
	c.schedules.Add(1)
	c.publishes.Add(int64(len(res.history.Publishes)))
	c.deliveries.Add(int64(len(res.history.Deliveries)))
	for _, s := range res.history.Stored {
		if s.Forgotten > 0 {
			c.forgotten.Add(1)
		} else if s.Gone {
			c.removed.Add(1)
		}
	}
	c.virtual.Add(int64(res.virtual))
	c.faults.Add(int64(len(p.Faults)))
}

func (c *tally) tell(t *testing.T, took time.Duration) {
	t.Helper()
	t.Logf("%d schedules with %d faults, %d publishes and %d deliveries; %d events removed, "+
		"%d forgotten too; in %v: %.1f virtual hours a minute",
		c.schedules.Load(), c.faults.Load(), c.publishes.Load(), c.deliveries.Load(), c.removed.Load(), c.forgotten.Load(),
		took.Round(time.Millisecond),
		time.Duration(c.virtual.Load()).Hours()/took.Minutes())
}

// each calls do with the numbers below n, on all processors at once, until one says that it is
// enough.
func each(t *testing.T, n int, do func(t *testing.T, i int) (enough bool)) {
	t.Helper()
	var next atomic.Int64
	var over atomic.Bool
	t.Run("schedules", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for i := int(next.Add(1)) - 1; i < n && !over.Load(); i = int(next.Add(1)) - 1 {
					if do(t, i) {
						over.Store(true)
					}
				}
			})
		}
	})
}

// enough is how long a test runs schedules.
const enough = 10 * time.Second

// enoughSince reports whether n schedules are enough: as many as a machine runs in a time, in make soak in the test's share of it, and ten
// at least; with -short in a fifth of the time, and four.
func enoughSince(began time.Time, d time.Duration, n int) bool {
	fewest := 10
	if share, soaking := testkit.SoakTime(); soaking && share > 0 {
		d = min(d, share)
	} else if testing.Short() {
		d, fewest = d/5, 4
	}
	return n >= fewest && time.Since(began) > d
}

// TestSchedules runs fresh schedules, and checks that the promises are kept in all of them.
func TestSchedules(t *testing.T) {
	if *seedFlag != 0 {
		p := newPlan(*seedFlag, usualMix())
		report(t, p, runPlan(t, p))
		return
	}
	testkit.Rounds(t, func(t *testing.T, seed uint64) {
		var all tally
		began := time.Now()
		each(t, *manyFlag, func(t *testing.T, i int) bool {
			if enoughSince(began, enough, i) {
				return true
			}
			p := newPlan(seed<<16+uint64(i), usualMix())
			res := runPlan(t, p)
			all.count(p, res)
			report(t, p, res)
			return t.Failed()
		})
		all.tell(t, time.Since(began))
	})
}

// few is how many schedules a test looks at for a weakness that most of them miss.
const few = 3

// mustFind and mayFind are how many schedules a round of TestWeaknesses searches. If one of five
// finds a weakness, a hundred miss it once in 10^9 times.
const (
	mustFind = 100
	mayFind  = 40
)

// TestWeaknesses searches fresh schedules for one weakness after the other. So it shows what random
// schedules find now, beside the recorded ones. It fails if no schedule finds a weakness that
// hardly any should miss.
func TestWeaknesses(t *testing.T) {
	testkit.SoakOnly(t)
	testkit.Rounds(t, func(t *testing.T, seed uint64) {
		all := slices.Concat(weaknesses, logWeaknesses)
		w, most := all[seed%uint64(len(all))], mayFind
		if w.obvious {
			most = mustFind
		}
		found, n := search(t, searchMix(), w.name, "", seed<<16, most, func(*plan, result) bool { return true })
		switch {
		case found != nil:
			t.Logf("%s: found with schedule %d: %s", w.name, n, found.Breaks)
		case w.obvious:
			t.Errorf("%s: %d schedules do not find that %s", w.name, n, w.is)
		default:
			t.Logf("%s: not found with %d schedules", w.name, n)
		}
	})
}

// TestPlan runs the schedule that -plan names; with -record it shrinks the schedule and records it.
func TestPlan(t *testing.T) {
	if *planFlag == "" {
		t.Skip("without -plan there is none")
	}
	p, err := readPlan(*planFlag)
	require.NoError(t, err)
	if *recordFlag == "" {
		report(t, p, runPlan(t, p))
		return
	}
	require.NoError(t, shrink(t, p, *shrinkFlag).write(*recordFlag))
}

// recorded are the plans of a folder in testdata.
func recorded(t *testing.T, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.json"))
	require.NoError(t, err)
	return paths
}

// replayed does something with each plan.
func replayed(t *testing.T, paths []string, do func(t *testing.T, name string, p *plan)) {
	t.Helper()
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := readPlan(path)
			require.NoError(t, err)
			do(t, name, p)
		})
	}
}

// replays is how often a plan is run before it counts as harmless: the order of goroutines differs
// from run to run, and with the load of the machine. If one run of ten finds a violation, all of
// these runs miss it once in 10^9 times.
const replays = 200

// TestFixed replays plans under which a promise was broken once.
func TestFixed(t *testing.T) {
	replayed(t, recorded(t, "fixed"), func(t *testing.T, _ string, p *plan) {
		report(t, p, runPlan(t, p))
	})
}

// TestPlanted replays plans that find a weakness each, and break nothing without it; with -short a third of them.
func TestPlanted(t *testing.T) { planted(t, testkit.Some(t, 3, recorded(t, "planted"))) }

// TestPlantedSeldom replays those that have to be run often until they find their weakness.
func TestPlantedSeldom(t *testing.T) {
	testkit.SoakOnly(t)
	testkit.Rounds(t, func(t *testing.T, _ uint64) { planted(t, recorded(t, "seldom")) })
}

func planted(t *testing.T, paths []string) {
	replayed(t, paths, func(t *testing.T, name string, p *plan) {
		if p.Weakness == "" {
			t.Fatalf("%s plants nothing", name)
		}
		if !replay(t, p) {
			t.Errorf("%s: no run of %d broke %q: the rules do not find this weakness any more", name, replays, p.Breaks)
		}
		p.Weakness = ""
		report(t, p, runPlan(t, p))
	})
}

// replay runs a plan until it breaks the rule that it names.
func replay(t *testing.T, p *plan) bool {
	t.Helper()
	for range replays {
		res := runPlan(t, p)
		if breaks(res.violations, p.Breaks) {
			return true
		}
	}
	return false
}

var (
	searchFlag  = flag.String("search", "", "search schedules for this weakness, or for -kinds of faults, and record the first")
	kindsFlag   = flag.String("kinds", "", "the kinds of faults to search with, separated by commas; all if empty")
	onlyFlag    = flag.String("only", "", "the combination to search with, and nothing else")
	breaksFlag  = flag.String("breaks", "", "the rule to look for; any if empty")
	recordFlag  = flag.String("record", "", "where to record the plan that was found, when it is shrunk")
	tryFlag     = flag.Int("schedules", 5000, "schedules to search at most")
	countFlag   = flag.Bool("count", false, "run all -schedules, and count those that break a promise")
	shrinkFlag  = flag.Duration("shrink", 90*time.Second, "how long to shrink the plan that is recorded, at most")
	outboxFlag  = flag.Int("outbox", 10, "percent of the schedules to search with that have an outbox")
	captureFlag = flag.Int("captures", 10, "percent of the schedules to search with that have a captured collection")
	sweepsFlag  = flag.Int("sweeps", 20, "percent of the topics to search with that do not keep everything for ever")
	lastingFlag = flag.Int64("lasts", 60_000, "milliseconds of a schedule to search with, at most")
)

// TestSearch looks for a schedule that breaks a promise, leaves out the parts that it does not
// need, and records it.
func TestSearch(t *testing.T) {
	if *searchFlag == "" {
		t.Skip("without -search there is nothing to look for")
	}
	m := searchMix()
	m.lasts, m.only, m.outbox, m.sweeps, m.captures = ms(*lastingFlag), *onlyFlag, *outboxFlag, *sweepsFlag, *captureFlag
	if *kindsFlag != "" {
		m.kinds = nil
		for name := range strings.SplitSeq(*kindsFlag, ",") {
			m.kinds = append(m.kinds, faultKind(name))
		}
	}
	weakness := *searchFlag
	if weakness == "none" {
		weakness = ""
	}
	hits := 0
	found, n := search(t, m, weakness, *breaksFlag, uint64(time.Now().UnixNano()), *tryFlag, func(p *plan, res result) bool {
		if hits++; *countFlag {
			t.Logf("seed %d: %v", p.Seed, res.violations)
			return false
		}
		for _, v := range res.violations {
			t.Log(v)
		}
		if weakness == "" {
			report(t, p, res)
		}
		return *recordFlag == "" || unweakened(t, p) && steady(t, p, *breaksFlag)
	})
	if *countFlag {
		t.Logf("%d of %d schedules break a promise", hits, n)
		return
	}
	if found == nil {
		t.Fatalf("%d schedules break nothing", n)
	}
	t.Logf("found with schedule %d: %s", n, found.Breaks)
	if *recordFlag != "" {
		found = shrink(t, found, *shrinkFlag)
		found.About = fmt.Sprintf("Found with schedule %d.", n)
		if m.only != "" {
			found.About = fmt.Sprintf("Found with schedule %d of the combination %s.", n, m.only)
		}
		require.NoError(t, found.write(*recordFlag))
	}
}

// search returns the first plan that breaks a rule and that the caller accepts, and how many plans
// it has run.
func search(t *testing.T, m mix, weakness, rule string, first uint64, most int, accept func(*plan, result) bool) (found *plan, n int) {
	t.Helper()
	var mu sync.Mutex
	each(t, most, func(t *testing.T, i int) bool {
		p := newPlan(first+uint64(i), m)
		p.Weakness = weakness
		res := runPlan(t, p)
		for _, f := range res.failures {
			t.Logf("the schedule of seed %d: the simulation: %s", p.Seed, f)
		}
		mu.Lock()
		defer mu.Unlock()
		n++
		if !breaks(res.violations, rule) {
			return false
		}
		if found != nil {
			return true
		}
		p.Breaks = rule
		if rule == "" {
			p.Breaks = res.violations[0].Rule
		}
		if accept(p, res) {
			found = p
		}
		return found != nil
	})
	return found, n
}

// unweakened reports whether the plan breaks nothing without its weakness, if it has one.
func unweakened(t *testing.T, p *plan) bool {
	t.Helper()
	if p.Weakness == "" {
		return true
	}
	q := p.clone()
	q.Weakness = ""
	return len(runPlan(t, q).violations) == 0
}

// A recorded plan breaks its rule in nearly all of its runs, so that a test of several of them
// never passes it over.
const (
	steadyRuns = 10
	steadyHits = 9
)

// steady reports whether nearly all runs of a plan break the named rule; without a name, one rule
// that it finds.
func steady(t *testing.T, p *plan, rule string) bool {
	t.Helper()
	hits := map[string]int{}
	for n := range steadyRuns {
		seen := map[string]bool{}
		for _, v := range runPlan(t, p).violations {
			if rule == "" || v.Rule == rule {
				seen[v.Rule] = true
			}
		}
		most := 0
		for name := range seen {
			hits[name]++
		}
		for name, hit := range hits {
			if hit > most {
				most, p.Breaks = hit, name
			}
		}
		if most < steadyHits-(steadyRuns-1-n) {
			return false
		}
	}
	return true
}

// shrink leaves out of a plan what its violation does not need. The violation is the same if it
// breaks the same rule.
func shrink(t *testing.T, p *plan, atMost time.Duration) *plan {
	t.Helper()
	end := time.Now().Add(atMost)
	still := func(q *plan) bool { return time.Now().Before(end) && steady(t, q, p.Breaks) }
	for smaller := true; smaller; {
		smaller = false
		for _, q := range p.reductions() {
			if still(q) {
				p, smaller = q, true
				break
			}
		}
	}
	return p
}

// reductions are plans that have less than this one, those with much less first.
func (p *plan) reductions() (all []*plan) {
	reduce := func(change func(q *plan)) {
		q := p.clone()
		change(q)
		all = append(all, q)
	}
	if len(p.Topics) > 1 {
		for _, topic := range p.Topics {
			reduce(func(q *plan) { q.drop(topic.Name) })
		}
	}
	if n := len(p.Faults); n > 2 {
		reduce(func(q *plan) { q.Faults = q.Faults[n/2:] })
		reduce(func(q *plan) { q.Faults = q.Faults[:n/2] })
	}
	for i := range p.Faults {
		reduce(func(q *plan) { q.Faults = append(q.Faults[:i], q.Faults[i+1:]...) })
	}
	for i := range p.Faults {
		for j := range p.Faults[i].Then {
			reduce(func(q *plan) { q.Faults[i].Then = append(q.Faults[i].Then[:j], q.Faults[i].Then[j+1:]...) })
		}
	}
	for i := range p.Publishers {
		reduce(func(q *plan) { q.Publishers = append(q.Publishers[:i], q.Publishers[i+1:]...) })
	}
	for i := range p.Consumers {
		reduce(func(q *plan) { q.Consumers = append(q.Consumers[:i], q.Consumers[i+1:]...) })
	}
	for i := range p.Groups {
		if !slices.ContainsFunc(p.Consumers, func(c consumerPlan) bool { return c.Group == i }) {
			reduce(func(q *plan) { q.dropGroup(i) })
		}
	}
	for i := range p.Redrivers {
		reduce(func(q *plan) { q.Redrivers = append(q.Redrivers[:i], q.Redrivers[i+1:]...) })
	}
	for i := range p.Inserters {
		reduce(func(q *plan) { q.Inserters = append(q.Inserters[:i], q.Inserters[i+1:]...) })
	}
	for i := range p.Changers {
		reduce(func(q *plan) { q.Changers = append(q.Changers[:i], q.Changers[i+1:]...) })
	}
	if p.Measured {
		reduce(func(q *plan) { q.Measured = false })
	}
	for i := range p.Publishers {
		if p.Publishers[i].Calls > 1 {
			reduce(func(q *plan) { q.Publishers[i].Calls /= 2 })
		}
	}
	return all
}

// drop leaves out a topic, with all that is of it.
func (p *plan) drop(topic string) {
	p.Topics = slices.DeleteFunc(p.Topics, func(t topicPlan) bool { return t.Name == topic })
	p.Publishers = slices.DeleteFunc(p.Publishers, func(b publisherPlan) bool { return b.Topic == topic })
	for i := len(p.Groups) - 1; i >= 0; i-- {
		if p.Groups[i].Topic == topic {
			p.dropGroup(i)
		}
	}
}

// dropGroup leaves out a group, with its consumers and redrivers.
func (p *plan) dropGroup(i int) {
	p.Groups = slices.Delete(p.Groups, i, i+1)
	p.Consumers = slices.DeleteFunc(p.Consumers, func(c consumerPlan) bool { return c.Group == i })
	p.Redrivers = slices.DeleteFunc(p.Redrivers, func(b redriverPlan) bool { return b.Group == i })
	for j := range p.Redrivers {
		if p.Redrivers[j].Group > i {
			p.Redrivers[j].Group--
		}
	}
	for j := range p.Consumers {
		if p.Consumers[j].Group > i {
			p.Consumers[j].Group--
		}
	}
}

// What is left of a smaller plan is of groups that are left, down to nothing.
func TestReductionsAreWhole(t *testing.T) {
	for seed := range uint64(20) {
		for p := redrivenPlan(seed); ; {
			smaller := p.reductions()
			for _, q := range smaller {
				for _, c := range q.Consumers {
					if c.Group >= len(q.Groups) {
						t.Fatalf("seed %d: a consumer of group %d of %d", seed, c.Group, len(q.Groups))
					}
				}
				for _, b := range q.Redrivers {
					if b.Group >= len(q.Groups) {
						t.Fatalf("seed %d: a redriver of group %d of %d", seed, b.Group, len(q.Groups))
					}
				}
			}
			if len(smaller) == 0 {
				break
			}
			p = smaller[newDice(seed, 1).IntN(len(smaller))]
		}
	}
}
