package mongomodel

import (
	"cmp"
	"slices"
	"time"
)

// handOff is how long the set is without a primary after a stepdown that was asked for.
const handOff = time.Second

// reach tells whether two parties, members or clients, can talk to each other.
func (s *Set) reach(a, b string) bool { return !s.cut[link(a, b)] }

func link(a, b string) [2]string {
	if a > b {
		a, b = b, a
	}
	return [2]string{a, b}
}

// near lists the members that m can talk to, itself among them.
func (s *Set) near(m *member) []*member {
	var near []*member
	for _, o := range s.members {
		if !o.down && (o == m || s.reach(m.name, o.name)) {
			near = append(near, o)
		}
	}
	return near
}

// primaryOf is the primary that a member follows: of the primaries that it can talk to, the one of
// the newest term.
func (s *Set) primaryOf(m *member) *member {
	if m.down {
		return nil
	}
	var p *member
	for _, o := range s.members {
		reached := o == m || s.reach(m.name, o.name)
		newest := o.term >= m.term && (p == nil || o.term > p.term)
		if o.primary && !o.down && reached && newest {
			p = o
		}
	}
	return p
}

// look lets the members notice changes: members that are gone or back, and times that are over. It
// is called at every change and whenever something is due, and sets the alarm for the next time.
func (s *Set) look() {
	if s.closed {
		return
	}
	now := time.Now()
	for s.lookOnce(now) {
	}
	next := time.Time{}
	due := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, m := range s.members {
		switch {
		case m.down:
		case m.primary && !m.lost.IsZero():
			due(s.resignAt(m))
		case !m.primary && !m.alone.IsZero() && len(s.near(m)) >= s.quorum():
			due(s.standAt(m))
		}
	}
	s.alarm.Stop()
	if !next.IsZero() {
		s.alarm.Reset(next.Sub(now))
	}
	s.wake()
}

func (s *Set) resignAt(m *member) time.Time {
	return m.lost.Add(s.opts.ElectionTimeout + s.opts.StepdownAnswering)
}

// standAt is when a member that knows no primary stands for election.
func (s *Set) standAt(m *member) time.Time {
	at := m.alone.Add(s.opts.ElectionTimeout)
	if s.quorum() == 1 {
		at = m.alone // it has no other members to wait for
	}
	if !m.electAt.IsZero() {
		at = m.electAt
	}
	if m.barred.After(at) {
		at = m.barred
	}
	return at
}

// lookOnce does one thing that is due, and tells whether there may be more.
func (s *Set) lookOnce(now time.Time) bool {
	for _, m := range s.members {
		if m.down {
			continue
		}
		near := s.near(m)
		for _, o := range near { // heartbeats carry terms
			m.term = s.termOf(m, o)
		}
		if m.primary {
			switch {
			case len(near) >= s.quorum():
				m.lost = time.Time{}
			case m.lost.IsZero():
				m.lost = now
			case !now.Before(s.resignAt(m)):
				s.resign(m)
				return true
			}
			continue
		}
		if s.primaryOf(m) != nil {
			m.alone, m.electAt = time.Time{}, time.Time{}
			continue
		}
		if m.alone.IsZero() {
			m.alone = now
		}
		if len(near) >= s.quorum() && !now.Before(s.standAt(m)) && s.elect(m, near, now) {
			return true
		}
	}
	return false
}

// termOf is m's term after a heartbeat with o. A primary that hears of a newer term resigns.
func (s *Set) termOf(m, o *member) int64 {
	if o.term > m.term && m.primary {
		s.resign(m)
	}
	return max(m.term, o.term)
}

// elect makes the member with the newest oplog the primary, among those near m.
func (s *Set) elect(m *member, near []*member, now time.Time) bool {
	if slices.ContainsFunc(near, func(o *member) bool { return o.primary }) {
		return false
	}
	newest := slices.MaxFunc(near, compareOplogs)
	var free []*member
	for _, o := range near {
		if compareOplogs(o, newest) == 0 && !o.barred.After(now) && len(s.near(o)) >= s.quorum() {
			free = append(free, o)
		}
	}
	if len(free) == 0 {
		return false
	}
	p := free[s.random.IntN(len(free))]
	term := p.term
	for _, o := range s.near(p) {
		term = max(term, o.term)
	}
	for _, o := range s.near(p) {
		o.term = term + 1
		if o != p && o.primary {
			s.resign(o)
		}
	}
	p.primary, p.lost, p.alone, p.electAt = true, time.Time{}, time.Time{}, time.Time{}
	p.progress = make([]int, len(s.members))
	for _, o := range s.members {
		o.topology++
	}
	s.note(p)
	return true
}

// compareOplogs is positive where a's is newer.
func compareOplogs(a, b *member) int {
	return cmp.Or(cmp.Compare(a.lastTerm(), b.lastTerm()), cmp.Compare(a.last(), b.last()))
}

// resign makes a primary a secondary. Reads go on there, writes that wait fail, open transactions
// end.
func (s *Set) resign(m *member) {
	m.primary, m.lost = false, time.Time{}
	m.dropTransactions()
	for _, o := range s.members {
		o.topology++
	}
	s.wake()
}

// stepDown executes a requested stepdown: the others catch up and elect one of them soon, and this
// one does not stand for some time.
func (s *Set) stepDown(m *member, bar time.Duration) {
	for _, o := range s.near(m) {
		s.replicate(o, 0)
	}
	now := time.Now()
	m.barred = now.Add(bar)
	for _, o := range s.near(m) {
		o.electAt = now.Add(handOff)
		o.alone = now
	}
	s.resign(m)
	s.look()
}
