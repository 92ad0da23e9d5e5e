package dispatch

import (
	"slices"
	"strconv"

	"github.com/sluice-bus/sluice/sidecar/internal/roster"
)

// share is how one member's partitions change.
type share struct {
	member    *Member
	Lost, Won []int
}

// Divide decides which member has which partition, takes the partitions that move from the members
// that had them, and returns how the partitions of each member change. The caller hands the others
// over once those members know.
func (d *Dispatcher) Divide() []share {
	d.NeedsDivision = false
	to := d.owners()
	shares := d.shares(to)
	for i, p := range d.Parts {
		if p.assignee != to[i] {
			p.assignee = nil
		}
	}
	return shares
}

// HandOver gives the members the partitions that they have won.
func (d *Dispatcher) HandOver(shares []share) {
	for _, s := range shares {
		for _, i := range s.Won { // the others may have been revoked meanwhile
			d.Parts[i].assignee = s.member
		}
	}
}

// owners decides which member has which partition. It uses rendezvous hashing, so that few
// partitions move when members come and go.
func (d *Dispatcher) owners() []*Member {
	to := make([]*Member, len(d.Parts))
	d.Divided = false
	byName := make(map[string]*Member)
	var names []string
	for _, m := range d.members {
		d.Divided = d.Divided || m.Requested.Rebalance
		if m.Started {
			names = append(names, m.Name)
			byName[m.Name] = m
		}
	}
	if !d.Divided {
		return to
	}
	for i, p := range d.Parts {
		switch {
		case p.Open:
			to[i] = byName[roster.Owner(names, strconv.Itoa(i))]
		case p.Draining:
			to[i] = p.assignee // until the partition is drained
		}
	}
	return to
}

// shares compares a division with the one in force. When no member asks for a division any more,
// its end takes no partition from a member.
func (d *Dispatcher) shares(to []*Member) []share {
	shares := make([]share, 0, len(d.members))
	for _, m := range d.members {
		s := share{member: m, Lost: m.revoked}
		m.revoked = nil
		for i, p := range d.Parts {
			switch {
			case p.assignee == m && to[i] != m && d.Divided:
				s.Lost = append(s.Lost, i)
			case p.assignee != m && to[i] == m:
				s.Won = append(s.Won, i)
			}
		}
		slices.Sort(s.Lost)
		shares = append(shares, s)
	}
	return shares
}

// Revoke takes a partition from the member that has it for itself; the next turn tells it.
func (d *Dispatcher) Revoke(p *Partition) {
	d.NeedsDivision = true
	if p.assignee != nil {
		p.assignee.revoked = append(p.assignee.revoked, p.Index)
		p.assignee = nil
	}
}
