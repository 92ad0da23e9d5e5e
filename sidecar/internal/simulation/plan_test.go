package simulation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

// plan is a schedule before it runs.
type plan struct {
	// About says what a recorded plan shows.
	About string `json:"about,omitempty"`
	// Breaks is the rule that a run of a recorded plan breaks.
	Breaks string `json:"breaks,omitempty"`
	// Weakness is the mistake that a test has put into the product for the plan: one of mongolog's.
	Weakness string `json:"weakness,omitempty"`

	Seed     uint64 `json:"seed"`
	Sidecars int    `json:"sidecars"`
	Members  int    `json:"members"`            // of the replica set
	Measured bool   `json:"measured,omitempty"` // the replica set takes its time
	// LoneAfter is the log's; 0: the default.
	LoneAfter  int             `json:"lone_after,omitempty"`
	Lasts      ms              `json:"lasts"`
	Topics     []topicPlan     `json:"topics"`
	Groups     []groupPlan     `json:"groups,omitempty"`
	Publishers []publisherPlan `json:"publishers"`
	Consumers  []consumerPlan  `json:"consumers,omitempty"`
	Inserters  []inserterPlan  `json:"inserters,omitempty"`
	Redrivers  []redriverPlan  `json:"redrivers,omitempty"`
	Changers   []changerPlan   `json:"changers,omitempty"`
	Faults     []fault         `json:"faults,omitempty"`
	// Rests is how long all sidecars are stopped once everything is settled, before they go on; 0:
	// they never are.
	Rests ms `json:"rests,omitempty"`
}

// ms is a duration in a plan, in milliseconds.
type ms int64

func (m ms) d() time.Duration { return time.Duration(m) * time.Millisecond }

type topicPlan struct {
	Name         string `json:"name"`
	Partitions   int    `json:"partitions"`
	WriteConcern string `json:"write_concern,omitempty"` // "": majority
	Rejects      bool   `json:"rejects,omitempty"`       // instead of spooling while the store is away
	Retention    ms     `json:"retention,omitempty"`     // 0: for ever
	Window       ms     `json:"window,omitempty"`        // of deduplication; 0: as policies have it
	Compact      bool   `json:"compact,omitempty"`
}

type groupPlan struct {
	Topic      string `json:"topic"`
	Name       string `json:"name"`
	AckTimeout ms     `json:"ack_timeout"`
	Attempts   int    `json:"attempts"`
	Unordered  bool   `json:"unordered,omitempty"`
	// Poison is the share of events, in percent, that no member can process.
	Poison int `json:"poison,omitempty"`
}

type publisherPlan struct {
	Seed     uint64 `json:"seed"`
	Topic    string `json:"topic"`
	Sidecars []int  `json:"sidecars"` // the first is its own; it turns to the next when one does not answer
	Start    ms     `json:"start"`
	Every    ms     `json:"every"`
	Calls    int    `json:"calls"`
	Batch    int    `json:"batch"`              // events of a call, at most
	Keys     int    `json:"keys"`               // 0: events have no keys
	Repeats  int    `json:"repeats,omitempty"`  // percent of calls that publish earlier events again
	Clashes  int    `json:"clashes,omitempty"`  // percent of calls that use an earlier id for something else
	Unnamed  int    `json:"unnamed,omitempty"`  // percent of events whose id the sidecar makes
	Refused  int    `json:"refused,omitempty"`  // percent of events that the store never takes
	Pipeline int    `json:"pipeline,omitempty"` // calls under way at once; 0: one
	Lasts    ms     `json:"lasts,omitempty"`    // calls are made for so long; 0: until all are
	// Tombstones is the share of events, in percent, that say that their key is gone.
	Tombstones int `json:"tombstones,omitempty"`
	// Later is the share of events, in percent, that are scheduled, for up to Ahead; Cancels the
	// share of these that are cancelled.
	Later   int `json:"later,omitempty"`
	Ahead   ms  `json:"ahead,omitempty"`
	Cancels int `json:"cancels,omitempty"`
}

type consumerPlan struct {
	Seed    uint64 `json:"seed"`
	Group   int    `json:"group"` // in the plan's groups
	Sidecar int    `json:"sidecar"`
	Joins   ms     `json:"joins"`
	Leaves  ms     `json:"leaves,omitempty"` // 0: never
	Breaks  bool   `json:"breaks,omitempty"` // leaves without a word
	Window  int    `json:"window"`
	Takes   ms     `json:"takes"`             // to process an event, at most
	Nacks   int    `json:"nacks,omitempty"`   // percent of deliveries
	Late    int    `json:"late,omitempty"`    // percent: acked after the deadline
	Silent  int    `json:"silent,omitempty"`  // percent: never settled
	Extends int    `json:"extends,omitempty"` // percent: take longer, and ask for it
	Told    bool   `json:"told,omitempty"`    // of the partitions that are its own
}

// fault is one thing that goes wrong, from At on, for a while where it does not end by itself.
type fault struct {
	Kind       faultKind `json:"kind"`
	At         ms        `json:"at"` // in Then: from the moment at which the fault before it strikes
	For        ms        `json:"for,omitempty"`
	Seed       uint64    `json:"seed,omitempty"`
	Sidecar    int       `json:"sidecar,omitempty"` // everySidecar: of requests only
	Member     int       `json:"member,omitempty"`
	Primary    bool      `json:"primary,omitempty"`    // the member is the primary at the time
	Percent    int       `json:"percent,omitempty"`    // of requests
	By         ms        `json:"by,omitempty"`         // how much later or slower
	Command    string    `json:"command,omitempty"`    // only requests of this command, and
	Collection string    `json:"collection,omitempty"` // on this collection
	// Then are faults that follow this one, of the same member unless they are of the primary.
	Then []fault `json:"then,omitempty"`
}

// everySidecar is for faults that meet the requests of all sidecars.
const everySidecar = -1

// each calls do with the fault and all that follow it, and when they strike at the latest.
func (f fault) each(at ms, do func(f fault, at ms)) {
	do(f, at+f.At)
	for _, next := range f.Then {
		next.each(at+f.At, do)
	}
}

type faultKind string

// The kinds of faults. The first ones are of requests of one sidecar.
const (
	loseRequests faultKind = "lose-requests" // never arrive
	loseAnswers  faultKind = "lose-answers"
	late         faultKind = "late"          // arrive By later, whether or not their sender has given up
	halve        faultKind = "halve"         // are executed in part, and not answered
	slowRequests faultKind = "slow-requests" // are executed, and answered, By later
	partSidecar  faultKind = "part-sidecar"  // from a member
	isolate      faultKind = "isolate"       // a sidecar from all members
	outage       faultKind = "outage"        // all sidecars from all members

	partMember faultKind = "part-member" // from the other members
	slowMember faultKind = "slow-member" // by By
	lagMember  faultKind = "lag-member"  // what the primary writes arrives there By later
	stepdown   faultKind = "stepdown"    // of whoever is primary
	killMember faultKind = "kill-member" // and start it again

	killSidecar    faultKind = "kill-sidecar" // and start it again
	stopSidecar    faultKind = "stop-sidecar" // in order, and start it again
	pauseSidecar   faultKind = "pause-sidecar"
	suspendSidecar faultKind = "suspend-sidecar" // its monotonic clock stands still
	shiftClock     faultKind = "shift-clock"     // a sidecar's wall clock, by By
)

// mix says what random plans are made of.
type mix struct {
	kinds    []faultKind
	faults   int // at most
	lasts    ms
	only     string // "", or the combination that plans have, and nothing else
	outbox   int    // percent of plans that have one
	sweeps   int    // percent of topics that do not keep everything for ever
	later    int    // percent of plans that schedule events
	captures int    // percent of plans with a collection that is captured
}

// everyFault are all kinds.
var everyFault = []faultKind{loseRequests, loseAnswers, late, halve, slowRequests, partSidecar, isolate, outage, partMember,
	slowMember, lagMember, stepdown, killMember, killSidecar, stopSidecar, pauseSidecar, suspendSidecar, shiftClock}

// ofRequests are kinds of faults that can be narrowed down to one of requests, by command and
// collection.
var (
	ofRequests = []faultKind{loseRequests, loseAnswers, late, halve, slowRequests}
	requests   = [][2]string{
		{"insert", "events"}, {"find", "events"}, {"find", "heads"}, {"insert", "epochs"}, {"update", "epochs"}, {"find", "epochs"},
		{"delete", "epochs"}, {"insert", "nodes"}, {"update", "nodes"}, {"find", "nodes"},
	}
)

func usualMix() mix {
	return mix{kinds: everyFault, faults: 8, lasts: 40_000, outbox: 30, sweeps: 40, later: 25, captures: 15}
}

// searchMix has fewer faults, so that they do not hide a weakness.
func searchMix() mix {
	return mix{kinds: everyFault, faults: 6, lasts: 60_000, sweeps: 20}
}

// dice draws the numbers of a plan.
type dice struct{ *rand.Rand }

func newDice(seed, stream uint64) dice { return dice{rand.New(rand.NewPCG(seed, stream))} }

// upTo draws from 1 to n.
func (d dice) upTo(n int) int { return 1 + d.IntN(n) }

// between draws from a to b.
func (d dice) between(a, b ms) ms { return a + ms(d.Int64N(int64(b-a)+1)) }

// chance is true in percent of cases.
func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// some is most, in percent of cases, or else 0.
func (d dice) some(percent, most int) int {
	if !d.chance(percent) {
		return 0
	}
	return d.upTo(most)
}

// newPlan makes the plan of a seed. Half of the plans have faults that hurt together, beside faults
// that are drawn one by one.
func newPlan(seed uint64, m mix) *plan {
	d := newDice(seed, 1)
	p := &plan{Seed: seed, Sidecars: 1 + d.upTo(4), Members: 3, Lasts: d.between(m.lasts/2, m.lasts), Measured: d.chance(20)}
	for i := range d.upTo(2) {
		t := topicPlan{Name: fmt.Sprintf("t%d", i), Partitions: d.upTo(3), Rejects: d.chance(20)}
		if d.chance(20) {
			t.WriteConcern = fmt.Sprintf("w:%d", d.upTo(p.Members+1))
		}
		p.Topics = append(p.Topics, t)
		for g := range d.upTo(2) {
			g := groupPlan{
				Topic: t.Name, Name: fmt.Sprintf("g%d", g), AckTimeout: d.between(3_000, 20_000), Attempts: 1 + d.IntN(7),
				Unordered: d.chance(20), Poison: d.some(30, 10),
			}
			if d.chance(30) { // outlasts the faults that keep a sidecar from its members
				g.AckTimeout = d.between(20_000, 60_000)
			}
			p.Groups = append(p.Groups, g)
		}
		for range d.upTo(3) {
			p.Publishers = append(p.Publishers, d.publisher(p, t.Name))
		}
	}
	for i := range p.Groups {
		together, joins := d.chance(30), d.between(0, p.Lasts/2)
		for range d.upTo(3) {
			c := d.consumer(p, i)
			if together {
				c.Joins, c.Leaves = joins, 0
			}
			p.Consumers = append(p.Consumers, c)
		}
	}
	combined, single := 0, d.upTo(m.faults)
	switch {
	case m.only != "":
		combined, single = 1, 0
	case d.chance(50):
		combined, single = d.upTo(2), d.upTo(2)
	}
	for range combined {
		p.Faults = append(p.Faults, d.combination(p, m)...)
	}
	for range single {
		p.Faults = append(p.Faults, d.fault(p, m))
	}
	p.addInserters(m)
	p.addRetention(m)
	p.addLater(m)
	p.addChangers(m)
	if d := newDice(seed, 12); d.chance(50) { // at the first opportunity
		p.LoneAfter = 1
	}
	return p
}

// addRetention has some topics expire or be compacted while the plan runs, and has some plans go on
// after stubs and voids have been deleted.
func (p *plan) addRetention(m mix) {
	d := newDice(p.Seed, 8)
	for i := range p.Topics {
		t := &p.Topics[i]
		if !d.chance(m.sweeps) {
			continue
		}
		t.Compact = d.chance(40)
		if !t.Compact || d.chance(30) {
			t.Retention = d.between(1000, 2*p.Lasts)
		}
		if d.chance(50) {
			t.Window = d.between(1, 2*p.Lasts)
		}
		for j := range p.Publishers {
			if b := &p.Publishers[j]; b.Topic == t.Name && t.Compact {
				b.Keys, b.Tombstones = d.upTo(5), d.some(50, 30)
			}
		}
		if d.chance(10) {
			p.Rests = d.between(25*3_600_000, 30*3_600_000)
		}
	}
}

func (d dice) publisher(p *plan, topic string) publisherPlan {
	every := d.between(20, 1500)
	if d.chance(50) { // all the time
		every = p.Lasts / 60
	}
	return publisherPlan{
		Seed: d.Uint64(), Topic: topic, Sidecars: d.Perm(p.Sidecars), Start: d.between(0, p.Lasts/4),
		Every: every, Calls: min(40, int((p.Lasts-p.Lasts/4)/every)), Batch: d.upTo(5), Keys: d.IntN(4),
		Repeats: d.some(50, 30), Clashes: d.some(30, 10), Unnamed: d.some(20, 50), Pipeline: d.upTo(4),
	}
}

func (d dice) consumer(p *plan, group int) consumerPlan {
	c := consumerPlan{
		Seed: d.Uint64(), Group: group, Sidecar: d.IntN(p.Sidecars), Joins: d.between(0, p.Lasts/2),
		Breaks: d.chance(50), Window: d.upTo(10), Takes: d.between(1, 3000),
		Nacks: d.some(30, 20), Late: d.some(20, 10), Silent: d.some(20, 10), Extends: d.some(20, 20), Told: d.chance(30),
	}
	if d.chance(30) {
		c.Leaves = c.Joins + d.between(1000, p.Lasts/2)
	}
	return c
}

func (d dice) fault(p *plan, m mix) fault {
	f := fault{
		Kind: m.kinds[d.IntN(len(m.kinds))], At: d.between(0, p.Lasts*3/4), For: d.between(50, p.Lasts/4), Seed: d.Uint64(),
		Sidecar: d.IntN(p.Sidecars), Member: d.IntN(p.Members), Primary: d.chance(30),
	}
	if d.chance(20) {
		f.For = d.between(10_000, 40_000) // longer than a lease and an election
	}
	d.strength(&f)
	return f
}

// strength draws how hard a fault strikes.
func (d dice) strength(f *fault) {
	switch f.Kind {
	case loseRequests, loseAnswers, halve:
		f.Percent = d.upTo(100)
	case slowRequests:
		f.Percent, f.By = d.upTo(100), d.between(1, 3000)
	case late:
		f.Percent, f.By = d.upTo(50), d.between(1, 1000)
		if d.chance(40) {
			f.By = d.between(1000, 60_000)
		}
		if d.chance(1) {
			f.By = d.between(60_000, 3_600_000)
		}
	case slowMember, lagMember:
		f.By = d.between(1, 3000)
	case shiftClock:
		f.By = d.between(-3_600_000, 3_600_000)
	}
	if d.chance(30) && slices.Contains(ofRequests, f.Kind) {
		at := requests[d.IntN(len(requests))]
		f.Command, f.Collection = at[0], at[1]
	}
}

// unmet reports whether the topic's write concern asks for more members than there are.
func (p *plan) unmet(topic string) bool {
	return slices.ContainsFunc(p.Topics, func(t topicPlan) bool {
		return t.Name == topic && t.WriteConcern == fmt.Sprintf("w:%d", p.Members+1)
	})
}

// readPlan reads a recorded plan.
func readPlan(path string) (*plan, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &plan{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// write records the plan.
func (p *plan) write(path string) error {
	data, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// clone is a plan that may be changed.
func (p *plan) clone() *plan {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // plans are plain values
	}
	q := &plan{}
	if err := json.Unmarshal(data, q); err != nil {
		panic(err)
	}
	return q
}
