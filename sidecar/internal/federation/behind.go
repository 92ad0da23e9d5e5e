package federation

import (
	"errors"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

// The names of parts in cursors. Stores are named by their ids, sidecars by their node ids, which
// outlive restarts, or by their addresses where no id was ever known.
const (
	storePrefix   = "store:"
	spoolPrefix   = "spool:"
	unknownPrefix = "store-of:" // a sidecar's store whose id is not known
	// askedPrefix is before the name of a part that is not behind. It is in a cursor only beside
	// parts that are not known: one of these may turn out to be it.
	askedPrefix = "asked:"
	// restPart is all that is not known of the fleet.
	restPart = "rest:"
)

func storePart(id string) string        { return storePrefix + id }
func spoolPart(sidecar string) string   { return spoolPrefix + sidecar }
func unknownPart(sidecar string) string { return unknownPrefix + sidecar }

// keys are the names that a sidecar may have in cursors.
func (s *sidecar) keys() []string {
	keys := []string{s.said.NodeID, s.listed.NodeID, s.listed.Address}
	return slices.Compact(slices.DeleteFunc(keys, func(k string) bool { return k == "" }))
}

// entry finds where an earlier page left a part behind, under one of its names.
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

// precedes says whether a comes before b in the order.
func precedes(a, b eventlog.Point, descending bool) bool {
	c := a.Compare(b)
	return c != 0 && c < 0 != descending
}

// storeAfter is where a store's part goes on.
func storeAfter(q replay.FleetQuery, st *storePlan) *eventlog.Point {
	maybe := []string{restPart}
	for _, s := range st.on {
		for _, key := range s.keys() {
			maybe = append(maybe, unknownPart(key))
		}
	}
	return partAfter(q, []string{storePart(st.id)}, maybe)
}

// spoolAfter is where a sidecar's spool goes on.
func spoolAfter(q replay.FleetQuery, s *sidecar) *eventlog.Point {
	var parts []string
	for _, key := range s.keys() {
		parts = append(parts, spoolPart(key))
	}
	return partAfter(q, parts, []string{restPart})
}

// partAfter is where the part with one of the names goes on. While the part was not known, names in
// maybe may have stood for it.
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

// gapAfter is where a part that is missing will go on.
func gapAfter(q replay.FleetQuery, g gap) *eventlog.Point {
	parts := []string{g.part}
	prefix := g.part[:strings.Index(g.part, ":")+1]
	if prefix == storePrefix {
		prefix = unknownPrefix // which it may have been before
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

// errLeft explains a missing part of an earlier page whose sidecars are no longer listed.
var errLeft = errors.New("it has left the fleet, and an earlier page went without it")

// forgotten lists the parts that earlier pages left behind and no sidecar has.
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

// behind lists the parts that the next page's cursor has to hold, when this page ends at last; nil:
// it has no event.
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
