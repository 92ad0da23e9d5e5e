package sluice

import (
	"maps"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// division records which partitions are the subscription's own, for the hooks. The subscription's
// lock guards it.
type division struct {
	owned   map[int]bool    // by what the sidecar said last
	open    map[int]bool    // OnAssigned has returned
	shut    map[int][]*item // events that wait for that
	running map[int]int     // handlers by partition
	changes []change        // that the hooks are not told of yet
	telling bool            // tellHooks runs
}

type change struct {
	assigned   bool
	partitions []int
}

// maxChanges bounds the changes that wait for the hooks; at the bound the connection is not read.
const maxChanges = 1000

func (d *division) shuts(hooks bool, it *item) bool {
	p := it.message.Event.Partition
	if !hooks || d.open[p] {
		return false
	}
	if d.shut == nil {
		d.shut = map[int][]*item{}
	}
	d.shut[p] = append(d.shut[p], it)
	return true
}

func (d *division) enter(partition int) {
	if d.running == nil {
		d.running = map[int]int{}
	}
	d.running[partition]++
}

func (d *division) leave(partition int) {
	if d.running[partition]--; d.running[partition] == 0 {
		delete(d.running, partition)
	}
}

// divide takes ASSIGNED and REVOKED from a connection's reader.
func (s *Subscription) divide(conn *ConnSubscription, op string, partitions []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.division.changes) >= maxChanges && s.conn == conn && !s.stopping {
		s.changed.Wait()
	}
	if s.conn != conn {
		return
	}
	if op == wire.OpRevoked {
		s.revoke(partitions)
		return
	}
	d := &s.division
	if d.owned == nil {
		d.owned, d.open = map[int]bool{}, map[int]bool{}
	}
	var won []int
	for _, p := range partitions {
		if !d.owned[p] {
			d.owned[p] = true
			won = append(won, p)
		}
	}
	s.tell(change{true, won})
}

func (s *Subscription) revokeAll() {
	s.revoke(slices.Sorted(maps.Keys(s.division.owned)))
	for p, items := range s.division.shut { // of partitions that nobody announced
		s.waiting -= len(items)
		s.giveUp(items)
		delete(s.division.shut, p)
	}
}

// revoke takes partitions away. Their events that no handler has are delivered again elsewhere.
func (s *Subscription) revoke(partitions []int) {
	d := &s.division
	var lost []int
	for _, p := range partitions {
		if !d.owned[p] {
			continue
		}
		delete(d.owned, p)
		delete(d.open, p)
		lost = append(lost, p)
		s.waiting -= len(d.shut[p])
		s.giveUp(d.shut[p])
		delete(d.shut, p)
	}
	if len(lost) == 0 {
		return
	}
	s.abandon(func(it *item) bool { return slices.Contains(lost, it.message.Event.Partition) }, ErrRevoked)
	s.tell(change{false, lost})
}

// tell queues a change for the hooks.
func (s *Subscription) tell(c change) {
	if len(c.partitions) == 0 {
		return
	}
	d := &s.division
	d.changes = append(d.changes, c)
	if !d.telling {
		d.telling = true
		goIn(&s.work, s.tellHooks)
	}
}

// tellHooks calls the hooks until there is nothing to tell.
func (s *Subscription) tellHooks() {
	s.mu.Lock()
	d := &s.division
	for len(d.changes) > 0 {
		c := d.changes[0]
		hook := s.config.Assigned
		if !c.assigned {
			hook = s.config.Revoked
			for slices.ContainsFunc(c.partitions, func(p int) bool { return d.running[p] > 0 }) {
				s.changed.Wait()
			}
		}
		s.mu.Unlock()
		if hook != nil {
			hook(s.base, slices.Clone(c.partitions))
		}
		s.mu.Lock()
		d.changes = d.changes[1:]
		if c.assigned {
			s.openUp(c.partitions)
		}
		s.changed.Broadcast()
	}
	d.telling = false
	s.mu.Unlock()
}

// openUp gives handlers the events of partitions whose OnAssigned has returned, unless the
// partitions were lost meanwhile.
func (s *Subscription) openUp(partitions []int) {
	d := &s.division
	for _, p := range partitions {
		overtaken := slices.ContainsFunc(d.changes, func(c change) bool { return slices.Contains(c.partitions, p) })
		if !d.owned[p] || overtaken {
			continue
		}
		d.open[p] = true
		for _, it := range d.shut[p] {
			s.waiting--
			s.place(it)
		}
		delete(d.shut, p)
	}
	s.spawn(0)
	s.checkDrained()
}
