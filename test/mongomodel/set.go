package mongomodel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/test/mongomodel/store"
)

// Name is the replica set's.
const Name = "model"

// Options describe a set. The zero value is three members that answer at once, with MongoDB's own
// times.
type Options struct {
	Members int    // 0: three
	Seed    uint64 // decides which of equal members is elected, and ids
	// ElectionTimeout is after which time without a primary a member stands for election. 0: 10 s.
	ElectionTimeout time.Duration
	// StepdownAnswering is for how much longer than that a primary without a majority goes on
	// answering. 0: 10 s.
	StepdownAnswering time.Duration
	// TransactionLifetime is after which time an open transaction is aborted. 0: 60 s.
	TransactionLifetime time.Duration
	// TTLInterval is the time between two passes over the TTL indexes. 0: 60 s.
	TTLInterval time.Duration
	Latencies   Latencies
	// HelloWait is for how long at most a client waits at the server for changes. 0: as long as it
	// asks, which is 10 s. A driver that is disconnected right after it has connected waits as long
	// for its monitors.
	HelloWait time.Duration
	// Polling makes clients ask for changes every 10 s instead of waiting for them at the server.
	Polling bool
	// NoChangeStreams makes the set refuse change streams, as a standalone server does.
	NoChangeStreams bool
	// Version is the version that the set names: "8.0" or "4.4". Empty: "8.0".
	Version string
	// Introduce changes what the set says of itself in answers to hello and buildInfo, for tests
	// with servers that are no such set. nil: nothing.
	Introduce func(command string, answer bson.D) bson.D
	// Fault decides how a command is disturbed. It is called for each command except monitoring,
	// without locks held, and may be called from several goroutines at once. nil: nothing happens
	// to any.
	Fault func(Request) Fault
	// Addresses are the members' as clients see them. nil: m0:27017 and so on, which the dialer of
	// Client knows.
	Addresses []string
}

// Latencies are how long the parts of a command take.
type Latencies struct {
	Read, Write time.Duration // until it is executed
	Replication time.Duration // until another member has an entry
}

// Measured are the latencies of a real set of three members on one small machine.
var Measured = Latencies{Read: 1200 * time.Microsecond, Write: 2200 * time.Microsecond, Replication: 2500 * time.Microsecond}

// Set is a replica set.
type Set struct {
	opts   Options
	ended  chan struct{} // closed by Close
	served sync.WaitGroup
	began  time.Time

	mu         sync.Mutex
	members    []*member
	cut        map[[2]string]bool
	random     *rand.Rand
	closed     bool
	changed    chan struct{} // closed and replaced at every change
	alarm      *time.Timer   // for look
	ttl        *time.Timer
	nextCursor int64
	nextConn   int64
	process    bson.ObjectID
	trace      trace
	work       store.Work
	cost       Cost
}

// New starts a set. Its first member is the primary.
func New(o Options) *Set {
	o.Members = cmp.Or(o.Members, 3)
	o.ElectionTimeout = cmp.Or(o.ElectionTimeout, 10*time.Second)
	o.StepdownAnswering = cmp.Or(o.StepdownAnswering, 10*time.Second)
	o.TransactionLifetime = cmp.Or(o.TransactionLifetime, time.Minute)
	o.TTLInterval = cmp.Or(o.TTLInterval, time.Minute)
	o.Version = cmp.Or(o.Version, "8.0")
	if wireVersions[o.Version] == 0 {
		panic(fmt.Sprintf("mongomodel: the version %q is not known to the model", o.Version))
	}
	s := &Set{
		opts: o, ended: make(chan struct{}), began: time.Now(), cut: map[[2]string]bool{},
		random: rand.New(rand.NewPCG(o.Seed, 1)), changed: make(chan struct{}), nextCursor: 1, process: bson.NewObjectID(),
	}
	for i := range o.Members {
		m := &member{
			index: i, name: "m" + strconv.Itoa(i), live: store.New(), kept: store.New(), topology: 1,
			sessions: map[string]*record{}, conns: map[*conn]bool{},
		}
		m.addr = m.name + ":27017"
		if o.Addresses != nil {
			m.addr = o.Addresses[i]
		}
		m.live.Work, m.kept.Work = &s.work, &s.work
		m.forget()
		s.members = append(s.members, m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarm = time.AfterFunc(time.Hour, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.look()
	})
	s.ttl = time.AfterFunc(o.TTLInterval, s.passTTL)
	first := s.members[0]
	first.primary, first.term, first.progress = true, 1, make([]int, o.Members)
	for _, m := range s.members {
		m.term = 1
	}
	s.note(first)
	s.look()
	return s
}

// Work counts the index keys and documents that all members have examined so far.
func (s *Set) Work() store.Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.work
}

// Cost counts what writes make the members do.
type Cost struct {
	// Majority are the writes that waited for a majority.
	Majority int
	// Entries and Bytes are the oplog's: of an update only the fields that it changed, and without
	// what every entry has beside.
	Entries, Bytes int
	// Sessions are the updates of config.transactions.
	Sessions int
}

// Cost is what all writes so far have cost.
func (s *Set) Cost() Cost {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cost
}

// Minus is what has been added since another count.
func (c Cost) Minus(before Cost) Cost {
	return Cost{c.Majority - before.Majority, c.Entries - before.Entries, c.Bytes - before.Bytes, c.Sessions - before.Sessions}
}

// charge counts the entries of a write. The lock is held.
func (c *Cost) charge(ops []store.Entry) {
	for _, op := range ops {
		c.Entries++
		c.Bytes += op.Size()
	}
}

// forget drops the state that is in a member's memory only.
func (m *member) forget() {
	m.cursors = map[int64]*cursor{}
	m.dropTransactions()
}

// Close ends all connections and waits until all that was going on has ended.
func (s *Set) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.ended)
	}
	s.alarm.Stop()
	s.ttl.Stop()
	for _, m := range s.members {
		if m.replicating != nil {
			m.replicating.Stop()
		}
		m.dropTransactions()
		s.disconnect(m)
	}
	s.wake()
	s.mu.Unlock()
	s.served.Wait()
}

// wake makes all waiting goroutines check again. The lock is held.
func (s *Set) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

var errClosed = errors.New("the set is closed")

// wait waits, without the lock, until the time has come or ok returns true. It tells whether ok
// did.
func (s *Set) wait(until time.Time, ok func() bool) bool {
	var timer *time.Timer
	var due <-chan time.Time
	for !ok() {
		if s.closed || !until.IsZero() && !time.Now().Before(until) {
			return false
		}
		if timer == nil && !until.IsZero() {
			timer = time.NewTimer(time.Until(until))
			defer timer.Stop()
			due = timer.C
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-due:
		case <-s.ended:
		}
		s.mu.Lock()
	}
	return true
}

// sleep waits without the lock; it tells whether the set is still there.
func (s *Set) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.ended:
		return false
	}
}

// URI is the connection string; the addresses in it mean something to Client's dialer, or where the
// set listens.
func (s *Set) URI() string {
	var addrs []string
	for _, m := range s.members {
		addrs = append(addrs, m.addr)
	}
	return "mongodb://" + strings.Join(addrs, ",") + "/?replicaSet=" + Name
}

// Client returns options of a client that talks to the set over connections in memory. Partitions,
// faults and traces call it by the name given.
func (s *Set) Client(from string) *options.ClientOptions {
	return options.Client().ApplyURI(s.URI()).SetDialer(s.Dialer(from))
}

// Dialer connects to the members that URI names, for programs that make their own options of it.
func (s *Set) Dialer(from string) options.ContextDialer { return dialer{s, from} }

type dialer struct {
	set  *Set
	from string
}

// DialContext implements options.ContextDialer. While the link to the member is cut it waits, at
// most until ctx ends.
func (d dialer) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	s := d.set
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.addr != addr {
			continue
		}
		defer context.AfterFunc(ctx, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.wake()
		})()
		if !s.wait(time.Time{}, func() bool { return ctx.Err() != nil || s.reach(d.from, m.name) }) {
			return nil, errClosed
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case m.down || s.closed:
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		}
		there, here := net.Pipe()
		s.serve(m, here, d.from)
		return there, nil
	}
	return nil, fmt.Errorf("no member has the address %s", addr)
}

// Primary is the index of the primary that the newest term has, or -1.
func (s *Set) Primary() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	best := -1
	for i, m := range s.members {
		if m.primary && !m.down && (best < 0 || m.term > s.members[best].term) {
			best = i
		}
	}
	return best
}

// StepDown makes the primary i step down, as replSetStepDown does: another takes over after about a
// second.
func (s *Set) StepDown(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[i]; m.primary {
		s.stepDown(m, time.Minute)
	}
}

// Kill ends member i at once. The writes that it has acknowledged are on its disk.
func (s *Set) Kill(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[i]
	m.down, m.primary = true, false
	m.lost, m.alone, m.electAt, m.barred = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	m.forget()
	s.disconnect(m)
	for _, o := range s.members {
		o.topology++
	}
	s.look()
}

// Restart starts member i again.
func (s *Set) Restart(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[i]
	m.down = false
	s.look()
	s.catchUp()
}

// Part cuts the link between two parties, both ways: members are m0, m1 and so on, clients have the
// names given to Client. Messages between them arrive when the link is joined again.
func (s *Set) Part(a, b string) { s.setCut(a, b, true) }

// Join undoes Part.
func (s *Set) Join(a, b string) { s.setCut(a, b, false) }

func (s *Set) setCut(a, b string, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cut {
		s.cut[link(a, b)] = true
	} else {
		delete(s.cut, link(a, b))
	}
	s.look()
	s.catchUp()
}

// Isolate cuts member i off from the other members.
func (s *Set) Isolate(i int) {
	for j := range s.members {
		if j != i {
			s.Part(s.members[i].name, s.members[j].name)
		}
	}
}

// JoinAll undoes Part and Isolate.
func (s *Set) JoinAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.cut)
	s.look()
	s.catchUp()
}

// Slow makes every command on member i take longer by d.
func (s *Set) Slow(i int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[i].slow = d
}

// Lag makes entries reach member i later by d than the set's latencies say.
func (s *Set) Lag(i int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[i]
	m.lag = d
	if m.replicating != nil {
		m.replicating.Stop()
		m.replicating = nil
	}
	s.catchUp()
}

// catchUp replicates to all members from the primaries they now have.
func (s *Set) catchUp() {
	for _, m := range s.members {
		if !m.primary {
			s.replicateAfter(m, s.lagOf(m))
		}
	}
	s.wake()
}
