package mongomodel

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/store"
)

const (
	// snapshotLag is how many entries the kept committed state may be behind before it is brought
	// up.
	snapshotLag = 64
	// oplogBound is how many entries a member keeps. A member that is further behind copies the
	// whole state of the primary.
	oplogBound = 20_000
	// maxCursors bounds the cursors that are open on one member.
	maxCursors = 10_000
)

// entry is one entry of the oplog. Members share it, and it does not change once it is appended.
type entry struct {
	term    int64
	at      bson.Timestamp
	wall    time.Time
	ops     []store.Entry
	session string  // "" or the session whose record it carries
	record  *record // the session's from here on
	before  *record // the session's until here
}

// member is one member. All of it is guarded by the set's lock.
type member struct {
	index    int
	name     string // as in partitions and traces
	addr     string
	down     bool
	primary  bool
	term     int64
	slow     time.Duration
	lag      time.Duration // of replication to here, added to the set's
	topology int64         // counts the changes that a streaming hello waits for

	// The oplog: position p is the entry log[p-base-1], and the entries before base are only in the
	// stores.
	log  []*entry
	base int
	// live is the data at the position applied, which a read brings up to the oplog's end.
	live    *store.Store
	applied int
	// kept is the data at a position that was committed.
	kept   *store.Store
	keptAt int
	// committed is the majority commit point as far as this member knows.
	committed int
	clock     bson.Timestamp // the newest cluster time it has heard of
	sessions  map[string]*record

	progress     []int     // of a primary: up to where each member has its oplog
	lost         time.Time // of a primary: since when it has no majority, or zero
	alone        time.Time // of others: since when they know no primary, or zero
	electAt      time.Time // when it may stand for election at the soonest
	barred       time.Time // until when a stepdown keeps it from being elected
	replicating  *time.Timer
	cursors      map[int64]*cursor
	transactions map[string]*transaction
	writtenAt    map[string]int // claims of the writes while transactions are open, with their positions
	conns        map[*conn]bool
}

func (m *member) last() int { return m.base + len(m.log) }

func (m *member) entry(position int) *entry { return m.log[position-m.base-1] }

// lastTerm is the term of the newest entry.
func (m *member) lastTerm() int64 {
	if len(m.log) == 0 {
		return 0
	}
	return m.log[len(m.log)-1].term
}

// time is the time of an entry; of an entry that is no longer in the oplog it is zero, which is
// before everything.
func (m *member) time(position int) bson.Timestamp {
	if position <= m.base {
		return bson.Timestamp{}
	}
	return m.entry(position).at
}

// data is the data that a local read sees.
func (m *member) data() *store.Store {
	m.applyUntil(m.live, m.applied, m.last())
	m.applied = m.last()
	return m.live
}

// majority is the data that a majority read sees.
func (m *member) majority() *store.Store {
	if m.committed == m.last() {
		return m.data()
	}
	m.keep()
	return m.kept
}

// keep brings the committed state up to the commit point.
func (m *member) keep() {
	switch {
	case m.keptAt == m.committed:
		return
	case m.applied == m.committed:
		m.kept = m.live.Fork()
	default:
		m.applyUntil(m.kept, m.keptAt, m.committed)
	}
	m.keptAt = m.committed
}

func (m *member) applyUntil(s *store.Store, from, until int) {
	for p := from + 1; p <= until; p++ {
		for _, op := range m.entry(p).ops {
			if err := s.Apply(op); err != nil {
				panic(fmt.Sprintf("mongomodel: %s cannot apply entry %d: %v", m.name, p, err))
			}
		}
	}
}

// take appends an entry that is not applied to the data yet.
func (m *member) take(e *entry) {
	m.log = append(m.log, e)
	if m.clock.Before(e.at) {
		m.clock = e.at
	}
	if e.session != "" {
		m.sessions[e.session] = e.record
	}
}

// rollBack removes the entries after a position.
func (m *member) rollBack(position int) {
	if position < m.committed {
		panic(fmt.Sprintf("mongomodel: %s would roll back to %d what a majority had until %d", m.name, position, m.committed))
	}
	for p := m.last(); p > position; p-- {
		if e := m.entry(p); e.session != "" {
			m.sessions[e.session] = e.before
		}
	}
	m.keep()
	if m.applied > position {
		m.live, m.applied = m.kept.Fork(), m.keptAt
	}
	m.log = slices.Clip(m.log[:position-m.base])
}

// next is the time of the next entry: later than all that this member has heard of.
func (m *member) next(now time.Time) bson.Timestamp {
	at := bson.Timestamp{T: uint32(now.Unix()), I: 1}
	if !m.clock.Before(at) {
		at = bson.Timestamp{T: m.clock.T, I: m.clock.I + 1}
	}
	return at
}

// append writes an entry to a primary's oplog. The live data has its ops already.
func (s *Set) append(m *member, e *entry) int {
	e.term, e.wall = m.term, time.Now()
	e.at = m.next(e.wall)
	if e.session != "" {
		e.before = m.sessions[e.session]
	}
	m.take(e)
	m.applied = m.last()
	m.progress[m.index] = m.last()
	s.cost.charge(e.ops)
	s.commit(m)
	s.replicateFrom(m)
	if m.last()-m.keptAt > snapshotLag {
		m.keep()
	}
	if len(m.log) > oplogBound {
		s.truncate()
	}
	s.wake()
	return m.last()
}

// note appends an entry that changes nothing.
func (s *Set) note(m *member) int {
	m.data()
	return s.append(m, &entry{})
}

// replicateFrom brings a primary's new entries to the others, now or after the delay of
// replication.
func (s *Set) replicateFrom(p *member) {
	for _, m := range s.members {
		if m != p && !m.down {
			s.replicateAfter(m, s.lagOf(m))
		}
	}
}

func (s *Set) lagOf(m *member) time.Duration { return s.opts.Latencies.Replication + m.lag }

func (s *Set) replicateAfter(m *member, d time.Duration) {
	if d <= 0 {
		s.replicate(m, 0)
		return
	}
	if m.replicating != nil || s.closed {
		return
	}
	m.replicating = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		m.replicating = nil
		if !s.closed {
			s.replicate(m, s.lagOf(m))
		}
	})
}

// replicate rolls back the entries that a member's primary does not have, and brings the member the
// entries that the primary had before the delay of replication.
func (s *Set) replicate(m *member, lag time.Duration) {
	p := s.primaryOf(m)
	if p == nil || p == m || m.down {
		return
	}
	common, ok := m.commonWith(p)
	if !ok { // left behind, so it starts over
		m.log, m.base = slices.Clone(p.log), p.base
		m.live, m.applied = p.data().Fork(), p.applied
		p.keep()
		m.kept, m.keptAt, m.committed = p.kept.Fork(), p.keptAt, p.keptAt
		m.sessions = map[string]*record{}
		for k, r := range p.sessions {
			m.sessions[k] = r
		}
		common = m.last()
		s.disconnect(m)
	}
	if common < m.last() {
		m.rollBack(common)
		s.disconnect(m)
	}
	until := time.Now().Add(-lag)
	took := false
	for m.last() < p.last() {
		e := p.entry(m.last() + 1)
		if lag > 0 && e.wall.After(until) {
			s.replicateAfter(m, max(e.wall.Sub(until), 1))
			break
		}
		m.take(e)
		took = true
	}
	if m.last()-m.applied > oplogBound/2 {
		m.data()
	}
	if p.progress[m.index] != m.last() {
		p.progress[m.index] = m.last()
		s.commit(p)
	}
	m.learnCommit(p)
	if took {
		s.wake()
	}
}

func (m *member) learnCommit(p *member) {
	if c := min(p.committed, m.last()); c > m.committed {
		m.committed = c
		if m.committed-m.keptAt > oplogBound/2 {
			m.keep()
		}
	}
}

// commonWith is the last position up to which two oplogs are the same; false says that neither
// keeps it any more.
func (m *member) commonWith(p *member) (int, bool) {
	oldest := max(m.base, p.base)
	at := min(m.last(), p.last())
	for at > oldest && m.entry(at) != p.entry(at) {
		at--
	}
	return at, at > oldest || at == oldest && at <= m.committed // committed entries are the same everywhere
}

// commit moves a primary's commit point, and tells its secondaries.
func (s *Set) commit(p *member) {
	have := slices.Clone(p.progress)
	slices.Sort(have)
	at := have[len(have)-s.quorum()]
	if at <= p.committed || at <= p.base || p.entry(at).term != p.term {
		return
	}
	p.committed = at
	for _, m := range s.members {
		if m == p || p.progress[m.index] == 0 || s.primaryOf(m) != p {
			continue
		}
		if s.lagOf(m) > 0 {
			s.replicateAfter(m, s.lagOf(m))
		} else {
			m.learnCommit(p)
		}
	}
	s.wake()
}

func (s *Set) quorum() int { return len(s.members)/2 + 1 }

// truncate forgets the entries that every member has committed; a member that is too far back is
// left behind.
func (s *Set) truncate() {
	newest := 0
	for _, m := range s.members {
		newest = max(newest, m.committed)
	}
	upTo := newest
	for _, m := range s.members {
		if m.committed > newest-oplogBound {
			upTo = min(upTo, m.committed)
		}
	}
	for _, m := range s.members {
		at := min(upTo, m.committed) - 1 // the newest is always kept
		if at <= m.base+oplogBound/4 {
			continue
		}
		m.forgetUntil(at)
	}
}

// forgetUntil forgets the entries up to a position that was committed.
func (m *member) forgetUntil(at int) {
	if at <= m.base {
		return
	}
	m.data()
	m.keep()
	m.log = slices.Clone(m.log[at-m.base:])
	m.base = at
}
