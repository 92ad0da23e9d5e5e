package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/test/clocktest"
	"github.com/sluice-bus/sluice/test/mongomodel"
)

const (
	// settling is how long after the end of the last fault everything has to be published and
	// settled. Consumers that take 3 s for an event, one after the other of a key, and let some run
	// into their deadlines, take 5 minutes at most.
	settling = 10 * time.Minute
	// lingering is how long a run goes on after that, for late requests.
	lingering = 15 * time.Second
)

// tooLong is far beyond any run: something waits for an event that does not come.
const tooLong = 6 * time.Hour

// slowSchedule is how much time of the machine a schedule may take before it says which one it is:
// a usual one takes a tenth of a second to a few seconds. One that takes endlessSchedule spends no
// time on its own clock.
const (
	slowSchedule    = 30 * time.Second
	endlessSchedule = 5 * time.Minute
)

// run is one schedule that runs.
type run struct {
	plan            *plan
	weak            weakness
	history         *history
	set             *mongomodel.Set
	machines        []*machine
	outbox          *outboxClient // nil: the plan has none
	closeCollection func() error  // nil: no collection is captured
	policies        *policy.Current
	logger          *slog.Logger
	logged          *bytes.Buffer // guarded by the logger
	meter           meter         // of requests, in place of faults of requests and of readers; nil: none
	ungauged        bool          // nobody asks for the gauges of groups

	over      chan struct{} // closed when applications have to end
	going     atomic.Int64  // publishers that have more to publish
	apps      sync.WaitGroup
	leftovers sync.WaitGroup

	resting atomic.Bool

	mu       sync.Mutex
	calm     bool
	deadline time.Time         // after which nothing is tried again
	troubles map[*trouble]bool // faults of requests, under way
	parted   map[[2]int]int    // (sidecar, member): by how many faults
	killed   map[string]bool   // lives, as the replica set calls them
	failures []string          // of the simulation itself
	instant  time.Time         // of the last command
	atOnce   int               // commands at that instant; it stays at maxAtOnce
}

// meter sees all requests of sidecars.
type meter interface {
	meet(mongomodel.Request) mongomodel.Fault
}

// result is the result of a run.
type result struct {
	history    *history
	violations []violation
	failures   []string
	trace      []byte // of all commands, and what the sidecars logged
	virtual    time.Duration
}

// runPlan runs a plan in a bubble of its own.
func runPlan(t *testing.T, p *plan) (res result) {
	t.Helper()
	slow := time.AfterFunc(slowSchedule, func() {
		fmt.Fprintf(os.Stderr, "the schedule of seed %d has run for %v on the clock of this machine\n", p.Seed, slowSchedule)
	})
	defer slow.Stop()
	endless := time.AfterFunc(endlessSchedule, func() {
		panic(fmt.Sprintf("the schedule of seed %d, weakness %q, has run for %v of the machine's time", p.Seed, p.Weakness, endlessSchedule))
	})
	defer endless.Stop()
	synctest.Test(t, func(t *testing.T) {
		stuck := time.AfterFunc(tooLong+p.Rests.d(), func() { panic(fmt.Sprintf("the schedule of seed %d does not come to its end", p.Seed)) })
		defer stuck.Stop()
		r := newRun(p)
		began := time.Now()
		r.work()
		res = r.finish()
		res.virtual = time.Since(began)
	})
	return res
}

func newRun(p *plan) *run {
	r := &run{
		plan: p, history: newHistory(p), logged: &bytes.Buffer{}, over: make(chan struct{}),
		troubles: map[*trouble]bool{}, parted: map[[2]int]int{}, killed: map[string]bool{},
	}
	var err error
	if r.weak, err = weaken(p.Weakness); err != nil {
		r.fail("%v", err)
	}
	r.logger = slog.New(slog.NewTextHandler(r.logged, nil))
	o := mongomodel.Options{Members: p.Members, Seed: p.Seed, Polling: true, Fault: r.meet}
	if p.Measured {
		o.Latencies = mongomodel.Measured
	}
	r.set = mongomodel.New(o)
	r.policies = policy.NewCurrent(p.policies())
	for i := range p.Sidecars {
		r.machines = append(r.machines, &machine{run: r, name: sidecarName(i), fs: vfs.NewCrashableMem(), clock: clocktest.New(),
			turn: make(chan struct{}, 1)})
	}
	return r
}

// policies are what the sidecars go by.
func (p *plan) policies() *policy.Snapshot {
	text := `
- name: "*"
  partitions: 1
  publish: {rate: 0}
  connection: {rate: 0}
  delivery: {max_inflight: 1000, ack_timeout: 1h, max_attempts: 1000, backoff: {min: 100ms, max: 2s}}
`
	for _, t := range p.Topics {
		concern, away := t.WriteConcern, "spool"
		if concern == "" {
			concern = "majority"
		}
		if t.Rejects {
			away = "reject"
		}
		text += fmt.Sprintf("- name: %s\n  partitions: %d\n  durability: {write_concern: %q, on_store_unavailable: %s}\n"+
			"  retention: {ttl: %v, compact: %v}\n", t.Name, t.Partitions, concern, away, t.Retention.d(), t.Compact)
		if t.Window > 0 {
			text += fmt.Sprintf("  dedupe: {window: %v}\n", t.Window.d())
		}
	}
	list, err := policy.ParseYAML([]byte(text))
	if err != nil {
		panic(err)
	}
	s, err := policy.NewSnapshot(list, "test")
	if err != nil {
		panic(err)
	}
	return s
}

// work is the run from its start until everything is settled.
func (r *run) work() {
	r.startApplications()
	var faults sync.WaitGroup
	for _, f := range r.plan.Faults {
		faults.Go(func() { r.strike(f) })
	}
	time.Sleep(r.plan.Lasts.d())
	faults.Wait()
	r.mend()
	r.settle()
	if r.plan.Rests > 0 {
		r.rest()
		r.settle()
	}
	r.stopApplications()
}

// startApplications starts the sidecars and their applications.
func (r *run) startApplications() {
	for _, m := range r.machines {
		r.start(m)
	}
	r.openOutbox()
	r.openCollection()
	for i, p := range r.plan.Publishers {
		app := &publisher{run: r, name: publisherName(i), plan: p, dice: newDice(p.Seed, 2)}
		r.going.Add(1)
		r.apps.Go(func() {
			defer r.going.Add(-1)
			app.work()
		})
	}
	for i, c := range r.plan.Consumers {
		app := &consumer{run: r, name: consumerName(i), plan: c, group: r.plan.Groups[c.Group], told: c.Told}
		r.apps.Go(app.work)
	}
	for _, b := range r.plan.Redrivers {
		r.apps.Go(func() { r.redrives(b) })
	}
	for _, t := range r.plan.Topics {
		if r.meter != nil {
			break // a reader's commands are its own
		}
		r.apps.Go(func() { r.read("r-"+t.Name, t.Name, t.Partitions, newDice(r.plan.Seed, hash(t.Name, 3))) })
	}
}

// stopApplications lets the applications end, and then stops the sidecars.
func (r *run) stopApplications() {
	close(r.over)
	r.apps.Wait()
	for _, m := range r.machines {
		r.leftovers.Go(m.stop)
	}
	r.leftovers.Wait()
}

// start begins a life of a sidecar.
func (r *run) start(m *machine) {
	if err := m.start(); err != nil {
		r.fail("start: %v", err)
	}
}

// settles is how long everything may take to come to its end. A planted fault that goes round and round does so in all of it.
func (p *plan) settles() time.Duration {
	if p.Weakness == "redriven-for-ever" {
		return time.Minute
	}
	return settling
}

// mend resumes and starts all sidecars, and gives each group a member that works well.
func (r *run) mend() {
	r.mu.Lock()
	r.calm, r.deadline = true, time.Now().Add(r.plan.settles()/2)
	r.mu.Unlock()
	for _, m := range r.machines {
		m.resume()
		r.start(m)
	}
	for i, g := range r.plan.Groups {
		c := consumerPlan{Seed: uint64(i), Group: i, Sidecar: i % len(r.machines), Window: 100, Takes: 1}
		app := &consumer{run: r, name: "last-" + g.Topic + "-" + g.Name, plan: c, group: g}
		r.apps.Go(app.work)
	}
}

// rest stops all sidecars until records of ids and seqs may be deleted. Then it publishes new
// events, and earlier ones whose ids are still known.
func (r *run) rest() {
	r.resting.Store(true)
	for _, m := range r.machines {
		m.stop()
	}
	if err := r.takeStock(); err != nil { // now that nobody removes anything
		r.fail("reading the log before the rest: %v", err)
	}
	time.Sleep(r.plan.Rests.d())
	r.resting.Store(false)
	for _, m := range r.machines {
		r.start(m)
	}
	r.mu.Lock()
	r.deadline = time.Now().Add(r.plan.settles() / 2)
	r.mu.Unlock()
	var again sync.WaitGroup
	for i, b := range r.plan.Publishers {
		b.Start, b.Every, b.Calls, b.Clashes, b.Unnamed = 0, 100, 10, 0, 0
		app := &publisher{run: r, name: publisherName(i) + "-again", plan: b, dice: newDice(b.Seed, 9), sent: r.remembered(b)}
		again.Go(app.work)
	}
	again.Wait()
}

// remembered are some of the ids that a publisher has published before, as far as they are not
// forgotten after a rest.
func (r *run) remembered(b publisherPlan) (sent []item) {
	if t := r.history.topics[b.Topic]; t.Window > 0 || t.WriteConcern != "" {
		return nil
	}
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	for _, p := range r.history.Publishes {
		if p.Topic == b.Topic && p.ok() && len(sent) < 10 {
			sent = append(sent, item{id: p.ID, key: p.Key, content: p.Content})
		}
	}
	return sent
}

// tryAgain is how long applications wait before they try a refused request again.
func (r *run) tryAgain() time.Duration {
	if r.resting.Load() {
		return time.Minute
	}
	return 500 * time.Millisecond
}

// settle waits until the groups have nothing left, or for as long as they may take.
func (r *run) settle() {
	end := time.Now().Add(r.plan.settles())
	for time.Now().Before(end) {
		time.Sleep(time.Second)
		if !r.quiet() {
			continue
		}
		time.Sleep(lingering + r.latest())
		if r.quiet() {
			return
		}
	}
}

// latest is how long after the faults a request may still be executed.
func (r *run) latest() (d time.Duration) {
	for _, first := range r.plan.Faults {
		first.each(0, func(f fault, at ms) {
			if left := (at + f.For + f.By - r.plan.Lasts).d(); f.Kind == late && left > d {
				d = left
			}
		})
	}
	return d
}

// quiet reports whether all calls are answered, nothing is spooled, all stored events are readable,
// and no group has anything left.
func (r *run) quiet() bool {
	r.history.mu.Lock()
	open := r.going.Load() > 0
	for _, p := range r.history.Publishes {
		open = open || !p.Ended.came() && r.process(p.Sidecar, p.Life)
	}
	r.history.mu.Unlock()
	if open || !r.outbox.drained() || !r.captured() || r.spooled() > 0 || r.waiting() {
		return false
	}
	if r.plan.Weakness == "" && !r.readable() { // with some weaknesses nothing ever mends a hole
		return false
	}
	if len(r.plan.Redrivers) > 0 && r.redriving() {
		return false
	}
	for _, g := range r.plan.Groups {
		if events, err := r.lag(g); err != nil || events > 0 {
			return false
		}
	}
	return true
}

// process reports whether the sidecar's running process is that life.
func (r *run) process(sidecar string, life int) bool {
	for _, m := range r.machines {
		if p := m.process(); m.name == sidecar && p != nil {
			return p.number == life
		}
	}
	return false
}

// readable reports whether no event has a hole below it, each of which readers wait for.
func (r *run) readable() bool {
	p := r.machines[0].process()
	if p == nil {
		return false
	}
	ctx := context.Background()
	topics, err := p.log.Topics(ctx) // those of dead letters, too
	if err != nil {
		return false
	}
	var heads []eventlog.Hint
	for _, t := range topics {
		extents, err := p.log.Extents(ctx, t.Name)
		if err != nil {
			return false
		}
		for i, x := range extents {
			heads = append(heads, eventlog.Hint{Topic: t.Name, Partition: i, Head: x.Head})
		}
	}
	ahead, err := p.log.Ahead(ctx, heads)
	return err == nil && len(ahead) == 0
}

func (r *run) lag(g groupPlan) (int64, error) {
	p := r.machines[0].process()
	if p == nil {
		return 0, fmt.Errorf("%s does not run", r.machines[0].name)
	}
	info, err := p.groups.Info(context.Background(), g.Topic, g.Name)
	return info.Lag, err
}

// finish reads what the log has, ends everything and applies the rules.
func (r *run) finish() (res result) {
	if err := r.takeStock(); err != nil {
		r.fail("reading the log: %v", err)
	}
	if err := r.outbox.close(); err != nil {
		r.fail("reading the outbox: %v", err)
	}
	if r.closeCollection != nil {
		if err := r.closeCollection(); err != nil {
			r.fail("captured collection: %v", err)
		}
	}
	r.set.Close()
	res.history, res.failures = r.history, r.failures
	res.violations = r.history.check()
	var trace bytes.Buffer
	if len(res.violations)+len(res.failures) > 0 {
		r.set.WriteTrace(&trace)
		trace.Write(r.logged.Bytes())
		enc := json.NewEncoder(&trace)
		enc.SetIndent("", " ")
		_ = enc.Encode(r.history)
	}
	res.trace = trace.Bytes()
	return res
}

// takeStock notes the whole log, through a client without faults.
func (r *run) takeStock() error {
	log, err := mongolog.Open(mongolog.Options{
		URL: r.set.URI() + "&serverMonitoringMode=poll", NodeID: "stock", Logger: r.logger, Dialer: r.set.Client("stock").Dialer,
	})
	if err != nil {
		return err
	}
	defer log.Close()
	ctx := context.Background()
	before := r.history.Stored
	r.history.Stored, r.history.Lags = nil, nil
	topics, err := log.Topics(ctx)
	if err != nil {
		return err
	}
	for _, t := range topics {
		for p := range t.Partitions {
			for next := uint64(1); ; {
				recs, err := log.Read(ctx, t.Name, p, next, eventlog.Bounds{Events: 1000})
				if err != nil {
					return err
				}
				if len(recs) == 0 {
					break
				}
				for _, rec := range recs {
					r.history.Stored = append(r.history.Stored, newStored(rec))
				}
				next = recs[len(recs)-1].Seq + 1
			}
		}
	}
	if err := r.takeStockOfStubs(ctx, before); err != nil {
		return err
	}
	for _, g := range r.plan.Groups {
		epochs, err := log.LatestEpochs(ctx, g.Topic, g.Name)
		if err != nil {
			return err
		}
		extents, err := log.Extents(ctx, g.Topic)
		if err != nil {
			return err
		}
		left := lag{Topic: g.Topic, Group: g.Name}
		for _, e := range epochs {
			x := extents[e.Partition]
			from := max(e.Progress.Cursor, x.First)
			left.Events += max(int64(x.Head+1-from), 0)
			for _, done := range e.Progress.Settled { // above an event that a member had when it was removed
				left.Events -= max(int64(min(done.Last, x.Head)+1-max(done.First, from)), 0)
			}
			left.Ahead += max(int64(e.Progress.Cursor-x.Head-1), 0)
		}
		if len(epochs) < len(extents) {
			left.Events++
		}
		for i := range extents {
			rs, err := log.ListRedrives(ctx, g.Topic, g.Name, i, 1)
			if err != nil {
				return err
			}
			left.Redriven = left.Redriven || len(rs) > 0
		}
		r.history.Lags = append(r.history.Lags, left)
	}
	return nil
}

// takeStockOfStubs notes the events that retention and compaction have removed. An event whose stub
// is gone since before the rest is known from the earlier notes alone.
func (r *run) takeStockOfStubs(ctx context.Context, before []stored) error {
	client, err := mongo.Connect(r.set.Client("stock").SetServerMonitoringMode(options.ServerMonitoringModePoll).
		SetReadConcern(readconcern.Majority()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	cursor, err := client.Database(mongolog.DefaultDatabase).Collection("events").Find(ctx,
		bson.D{{Key: "gone", Value: true}, {Key: "void", Value: bson.D{{Key: "$exists", Value: false}}},
			{Key: "partition", Value: bson.D{{Key: "$gte", Value: 0}}}}) // scheduled events, also past ones, have no partition
	if err != nil {
		return err
	}
	var docs []bson.Raw
	if err := cursor.All(ctx, &docs); err != nil {
		return err
	}
	contents := r.history.contents()
	for _, raw := range docs {
		d, err := document.Decode(raw)
		if err != nil {
			return err
		}
		s := newStored(d.Record)
		at, _ := raw.Lookup("gone_at").AsInt64OK()
		s.Gone, s.GoneAt = true, time.UnixMilli(at).Sub(r.history.start)
		it := contents[string(d.Hash)]
		s.Key, s.Content = it.key, it.content
		r.history.Stored = append(r.history.Stored, s)
	}
	for _, s := range before {
		if s.Gone && !slices.ContainsFunc(r.history.Stored, func(o stored) bool { return o.Topic == s.Topic && o.ID == s.ID }) {
			s.Forgotten = time.Since(r.history.start)
			r.history.Stored = append(r.history.Stored, s)
		}
	}
	return nil
}

func newStored(rec *eventlog.Record) stored {
	s := stored{Topic: rec.Topic, ID: rec.ID, Key: rec.Key, Content: string(rec.Payload), Partition: rec.Partition, Seq: rec.Seq, TS: rec.TS}
	if _, dead := deadLettersOf(rec.Topic); dead {
		s.DeadID, _ = rec.Headers.Get(wire.HeaderDeadID)
		s.DeadGroup, _ = rec.Headers.Get(wire.HeaderDeadGroup)
		attempts, _ := rec.Headers.Get(wire.HeaderDeadAttempts)
		s.DeadAttempts, _ = strconv.Atoi(attempts)
	}
	return s
}

// sleep waits for d; false: the run is over.
func (r *run) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.over:
		return false
	}
}

// during runs something that applications do.
func (r *run) during(do func()) { r.apps.Go(do) }

func (r *run) isCalm() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calm
}

// late reports whether it is too late to try anything again.
func (r *run) late() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calm && time.Now().After(r.deadline)
}

// fail notes that the simulation itself does not work.
func (r *run) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// unmet notes an answer that an application did not get.
func (r *run) unmet(format string, args ...any) {
	r.history.note(func(now moment) {
		r.history.Unmet = append(r.history.Unmet, fmt.Sprintf("%v: ", now.At)+fmt.Sprintf(format, args...))
	})
}

// hash makes a number of a name.
func hash(name string, n int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", name, n)
	return h.Sum64()
}
