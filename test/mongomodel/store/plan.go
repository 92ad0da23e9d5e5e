package store

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/test/mongomodel/query"
)

// maxRanges is how many ranges of an index one plan may have. With more, fewer of the index's
// fields bound them.
const maxRanges = 10_000

// A plan is how a find goes about it: over an index's ranges or the whole collection, and whether
// in the order asked for.
type plan struct {
	index   string // "": the collection, in the order of insertion
	ranges  []keyRange
	reverse bool
	ordered bool // no sort is needed
	// equalities, bounded and partial say how good the plan is: how many of the index's first
	// fields have single values, whether the next has bounds, and whether the index leaves out
	// documents that are not asked for.
	equalities       int
	bounded, partial bool
	// rest are the bounds of the fields behind the ranges: an entry's document is read only if its
	// key is within them.
	rest []query.Bounds
}

// A keyRange has the keys between two prefixes of keys, in the order of the index.
type keyRange struct {
	low, high         []bson.RawValue
	lowOpen, highOpen bool
}

// plan chooses how to find. It need not be the server's choice, but reads as little where that is
// plain to see.
func (c *collection) plan(r FindRequest) (plan, error) {
	natural := r.Natural
	if hint, ok := r.Hint.DocumentOK(); ok {
		if v := query.Lookup(hint, "$natural"); v.Type != 0 {
			n, _ := v.AsInt64OK()
			natural = int(n)
		}
	}
	scan := plan{reverse: natural < 0, ordered: r.Sort.Empty()}
	if natural != 0 {
		return scan, nil
	}
	if !query.IsEmpty(r.Hint) {
		return c.hinted(r, scan)
	}
	best := scan
	for _, x := range c.indexes {
		if x.serves(r.Filter) {
			if p := x.plan(r); p.better(best) {
				best = p
			}
		}
	}
	return best, nil
}

func (c *collection) hinted(r FindRequest, scan plan) (plan, error) {
	x := c.index(r.Hint)
	switch {
	case x == nil:
		return plan{}, query.Errorf(query.BadValue, "error processing query: ns=%s planner returned error :: caused by :: hint provided "+
			"does not correspond to an existing index", c.ns)
	case x.partial != nil && !r.Filter.Implies(x.partial):
		return plan{}, query.Errorf(291, "error processing query: ns=%s planner returned error :: caused by :: No query solutions", c.ns)
	case x.multikey:
		return scan, nil
	}
	return x.plan(r), nil
}

// serves tells whether the index has all documents that the filter selects, with their values in
// the filter's bounds.
func (x *index) serves(f *query.Filter) bool {
	if x.multikey || x.partial != nil && !f.Implies(x.partial) {
		return false
	}
	if !x.sparse {
		return true
	}
	return slices.ContainsFunc(x.pattern.Paths, func(path string) bool {
		b := f.Bounds(path)
		return !b.Contains(bson.RawValue{Type: bson.TypeNull}) && !b.Contains(bson.RawValue{})
	})
}

func (p plan) better(than plan) bool {
	if p.equalities != than.equalities {
		return p.equalities > than.equalities
	}
	if p.bounded != than.bounded {
		return p.bounded
	}
	if p.ordered != than.ordered {
		return p.ordered
	}
	return p.partial && !than.partial
}

func (x *index) plan(r FindRequest) plan {
	p := plan{index: x.name, partial: x.partial != nil}
	p.ranges = []keyRange{{}}
	single := map[string]bool{} // the fields that have one value in all documents
	for i, path := range x.pattern.Paths {
		b := r.Filter.Bounds(path)
		if len(p.rest) > 0 || p.bounded || b.Everything() || len(p.ranges)*len(b) > maxRanges {
			p.rest = append(p.rest, b)
			continue
		}
		p.ranges = times(p.ranges, b, x.pattern.Directions[i])
		points, arePoints := b.Points()
		if !arePoints {
			p.bounded = true
			continue
		}
		p.equalities++
		single[path] = len(points) == 1
	}
	p.ordered, p.reverse = x.orders(r.Sort, single)
	return p
}

// times returns the ranges, all of which are points, each divided by the bounds of the next field.
// They stay in the order of the index.
func times(ranges []keyRange, b query.Bounds, direction int) []keyRange {
	intervals := slices.Clone(b)
	if direction < 0 {
		slices.Reverse(intervals)
	}
	var all []keyRange
	for _, r := range ranges {
		for _, i := range intervals {
			next := keyRange{low: append(slices.Clip(r.low), i.Low), high: append(slices.Clip(r.high), i.High), lowOpen: i.LowOpen,
				highOpen: i.HighOpen}
			if direction < 0 {
				next = keyRange{low: append(slices.Clip(r.low), i.High), high: append(slices.Clip(r.high), i.Low), lowOpen: i.HighOpen,
					highOpen: i.LowOpen}
			}
			all = append(all, next)
		}
	}
	return all
}

// orders tells whether the index has its entries in the order asked for, or against it. As in the
// older servers, the order begins as the index does, or as the index without the fields that have
// one value in all documents.
func (x *index) orders(sort *query.KeyPattern, single map[string]bool) (ordered, reverse bool) {
	if sort.Empty() {
		return true, false
	}
	all := make([]int, len(x.pattern.Paths))
	for i := range all {
		all[i] = i
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return single[x.pattern.Paths[i]] })
	if ordered, reverse = x.begins(all, sort); ordered {
		return ordered, reverse
	}
	return x.begins(rest, sort)
}

// begins tells whether an order is that of the first of these fields of the index, or against it.
func (x *index) begins(fields []int, sort *query.KeyPattern) (begins, reverse bool) {
	if len(sort.Paths) > len(fields) {
		return false, false
	}
	direction := 0
	for i, path := range sort.Paths {
		d := sort.Directions[i] * x.pattern.Directions[fields[i]]
		if x.pattern.Paths[fields[i]] != path || direction != 0 && d != direction {
			return false, false
		}
		direction = d
	}
	return true, direction < 0
}
