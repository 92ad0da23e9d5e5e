package federation

import (
	"errors"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

// The names of parts in cursors. A store's name is its id. A sidecar's name is its node id, which
// stays the same after a restart, or its address if its id was never known.
const (
	storePrefix   = "store:"
	spoolPrefix   = "spool:"
	unknownPrefix = "store-of:" // a sidecar's store whose id is not known
	// askedPrefix begins the name of a part that is not behind. A cursor has such names only beside
	// unknown parts, since one of these may later prove to be that part.
	askedPrefix = "asked:"
	// restPart stands for everything unknown in the fleet.
	restPart = "rest:"
)

func storePart(id string) string        { return storePrefix + id }
func spoolPart(sidecar string) string   { return spoolPrefix + sidecar }
func unknownPart(sidecar string) string { return unknownPrefix + sidecar }

// keys are the possible names of a sidecar in cursors.
func (s *sidecar) keys() []string {
	keys := []string{s.said.NodeID, s.listed.NodeID, s.listed.Address}
	return slices.Compact(slices.DeleteFunc(keys, func(k string) bool { return k == "" }))
}

// entry finds where a part that an earlier page left behind continues, by any of its names.
func entry(q replay.FleetQuery, parts ...string) (at *eventlog.Point, found bool) {
	for _, b := range q.Behind {
		if !slices.Contains(parts, b.Part) {
			continue
		}
		if !found || b.At == nil || at != nil && precedes(*b.At, *at, q.Scan.Descending) {
			at, found = b.At, true
		}
	}
	return at, found
}

// precedes reports whether a comes before b in the order.
func precedes(a, b eventlog.Point, descending bool) bool {
	c := a.Compare(b)
	return c != 0 && c < 0 != descending
}

// storeAfter is the point after which a store's part continues.
func storeAfter(q replay.FleetQuery, st *storePlan) *eventlog.Point {
	maybe := []string{restPart}
	for _, s := range st.on {
		for _, key := range s.keys() {
			maybe = append(maybe, unknownPart(key))
		}
	}
	return partAfter(q, []string{storePart(st.id)}, maybe)
}

// spoolAfter is the point after which a sidecar's spool continues.
func spoolAfter(q replay.FleetQuery, s *sidecar) *eventlog.Point {
	var parts []string
	for _, key := range s.keys() {
		parts = append(parts, spoolPart(key))
	}
	return partAfter(q, parts, []string{restPart})
}

// partAfter is the point after which the part with one of the names continues. While the part was
// unknown, earlier pages may have used a name in maybe for it.
func partAfter(q replay.FleetQuery, parts, maybe []string) *eventlog.Point {
	if at, found := entry(q, parts...); found {
		return at
	}
	for _, part := range parts {
		if _, asked := entry(q, askedPrefix+part); asked {
			return q.Scan.After
		}
	}
	if at, found := entry(q, maybe...); found {
		return at
	}
	return q.Scan.After
}

// gapAfter is the point after which a missing part will continue.
func gapAfter(q replay.FleetQuery, g gap) *eventlog.Point {
	parts := []string{g.part}
	prefix := g.part[:strings.Index(g.part, ":")+1]
	if prefix == storePrefix {
		prefix = unknownPrefix // the part's name while the store was unknown
	}
	for _, s := range g.of {
		for _, key := range s.keys() {
			parts = append(parts, prefix+key)
		}
	}
	if at, found := entry(q, parts...); found {
		return at
	}
	return q.Scan.After
}

// errLeft explains a part that is missing since an earlier page, and whose sidecars are no longer
// listed.
var errLeft = errors.New("it has left the fleet, and an earlier page went without it")

// forgotten lists the parts that earlier pages left behind and that no sidecar has now.
func (p *plan) forgotten(all []*sidecar) []gap {
	known := []string{restPart}
	for _, s := range all {
		known = append(known, storePart(s.storeID()))
		for _, key := range s.keys() {
			known = append(known, spoolPart(key), unknownPart(key))
		}
	}
	var out []gap
	for _, b := range p.query.Behind {
		if strings.HasPrefix(b.Part, askedPrefix) || slices.Contains(known, b.Part) {
			continue
		}
		_, name, _ := strings.Cut(b.Part, ":")
		if strings.HasPrefix(b.Part, storePrefix) {
			name = "store " + name
		}
		out = append(out, gap{part: b.Part, name: name, reason: "has left the fleet", err: errLeft})
	}
	return out
}

// behind lists the parts for the next page's cursor if this page ends at last; nil: the page has no
// event.
func (p *plan) behind(parts []*part, last *eventlog.Point) []replay.Behind {
	q := p.query
	var out []replay.Behind
	unknown := false
	for _, g := range p.gaps {
		out = append(out, replay.Behind{Part: g.part, At: gapAfter(q, g)})
		unknown = unknown || g.part == restPart || strings.HasPrefix(g.part, unknownPrefix)
	}
	for _, part := range parts {
		if samePlace(part.after(), q.Scan.After) {
			continue
		}
		at := part.after()
		if last != nil && (at == nil || precedes(*at, *last, q.Scan.Descending)) {
			at = last
		}
		if q.Scan.After != nil && (at == nil || precedes(*at, *q.Scan.After, q.Scan.Descending)) {
			out = append(out, replay.Behind{Part: part.cursor, At: at})
		}
	}
	if unknown {
		for _, part := range parts {
			out = append(out, replay.Behind{Part: askedPrefix + part.cursor})
		}
		for _, b := range q.Behind {
			if strings.HasPrefix(b.Part, askedPrefix) {
				out = append(out, b)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b replay.Behind) int { return strings.Compare(a.Part, b.Part) })
	return slices.CompactFunc(out, func(a, b replay.Behind) bool { return a.Part == b.Part })
}

func samePlace(a, b *eventlog.Point) bool {
	return a == b || a != nil && b != nil && *a == *b
}
