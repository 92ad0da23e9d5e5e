package federation

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

// plan says which sidecars are asked for which part.
type plan struct {
	query  replay.FleetQuery
	alone  bool // there are no peers
	stores []*storePlan
	spools []*sidecar
	gaps   []gap
}

// storePlan is one distinct store.
type storePlan struct {
	id      string
	sources []*sidecar // that can be asked, in the order of asking
	on      []*sidecar // all sidecars on it
}

// gap is a part that cannot be asked.
type gap struct {
	part   string     // for cursors
	of     []*sidecar // the sidecars that have it; empty: not known
	name   string     // for people, if of is empty
	reason string
	err    error
}

// plan finds the parts of the fleet.
func (f *Fleet) plan(all []*sidecar, q replay.FleetQuery) *plan {
	p := &plan{query: q, alone: len(all) == 1}
	if unknown := f.unknown(); unknown != "" {
		p.alone = false
		p.gaps = append(p.gaps, gap{part: restPart, name: unknown, reason: "was never reached, and only it knows all sidecars"})
	}
	stores := map[string]*storePlan{}
	for _, s := range all {
		id := s.storeID()
		if id == "" && !p.alone { // alone, its store reports the error itself
			p.gaps = append(p.gaps, unknownStoreGap(s))
			continue
		}
		st := stores[id]
		if st == nil {
			st = &storePlan{id: id}
			stores[id] = st
			p.stores = append(p.stores, st)
		} else if st.copiedBy(s) {
			g := unknownStoreGap(s) // for the events that the copy has taken since
			g.err, g.reason = errCopied, reasonOf(errCopied)
			p.gaps = append(p.gaps, g)
			continue
		}
		st.on = append(st.on, s)
		if s.err == nil && s.said.StoreID == id {
			st.sources = append(st.sources, s)
		}
	}
	p.stores = slices.DeleteFunc(p.stores, func(st *storePlan) bool {
		if len(st.sources) == 0 {
			p.gaps = append(p.gaps, storeGap(st, st.on[0].err))
			return true
		}
		st.shuffle()
		return false
	})
	for _, s := range all {
		switch {
		case s.err == nil && s.said.Shared:
			p.spools = append(p.spools, s)
		case s.err != nil && !f.hasNoSpool(s):
			p.gaps = append(p.gaps, spoolGap(s, s.err))
		}
	}
	p.gaps = append(p.gaps, p.forgotten(all)...)
	return p
}

// copiedBy reports whether a sidecar names the store's id but cannot be on that store. No two
// sidecars share a store that is a sidecar's own. So the folder was copied, and the copy has had
// other events since.
func (st *storePlan) copiedBy(s *sidecar) bool {
	return s.err == nil && slices.ContainsFunc(st.on, func(other *sidecar) bool {
		return other.err == nil && !(s.said.Shared && other.said.Shared)
	})
}

// unknown names the directory whose sidecars are not known; "" if all are known.
func (f *Fleet) unknown() string {
	if f.cfg.Unknown == nil {
		return ""
	}
	return f.cfg.Unknown()
}

// shuffle spreads the load over the sidecars of a store, but keeps this one first.
func (st *storePlan) shuffle() {
	others := st.sources
	if others[0].self {
		others = others[1:]
	}
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
}

func storeGap(st *storePlan, err error) gap {
	return gap{part: storePart(st.id), of: st.on, reason: reasonOf(err), err: err}
}

func spoolGap(s *sidecar, err error) gap {
	return gap{part: spoolPart(s.short()), of: []*sidecar{s}, reason: reasonOf(err), err: err}
}

func unknownStoreGap(s *sidecar) gap {
	return gap{part: unknownPart(s.short()), of: []*sidecar{s}, reason: reasonOf(s.err), err: s.err}
}

// names are the names of the gaps' sidecars, each once, sorted.
func names(gaps []gap) []string {
	var out []string
	for _, g := range gaps {
		for _, s := range g.of {
			out = append(out, s.name())
		}
		if len(g.of) == 0 {
			out = append(out, g.name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// maxReasons is how many reasons an error spells out.
const maxReasons = 5

// partialFleet is the error that names the gaps.
func partialFleet(gaps []gap) *wire.Error {
	missing := names(gaps)
	var reasons []string
	for _, g := range gaps {
		for _, name := range names([]gap{g}) {
			reasons = append(reasons, name+" "+g.reason)
		}
	}
	slices.Sort(reasons)
	reasons = slices.Compact(reasons)
	more := ""
	if len(reasons) > maxReasons {
		reasons, more = reasons[:maxReasons], ", and more"
	}
	return &wire.Error{
		Code: wire.PartialFleet, Missing: missing,
		Msg: "part of the fleet could not be asked: " + strings.Join(reasons, ", ") + more +
			"; with partial=ok the answer comes without it",
	}
}

// refusal logs the plan's gaps, and returns their error unless the answer may be partial.
func (p *plan) refusal(log *slog.Logger) error {
	if len(p.gaps) == 0 {
		return nil
	}
	if p.alone {
		for _, g := range p.gaps {
			if g.err != nil {
				return g.err
			}
		}
	}
	e := partialFleet(p.gaps)
	log.Warn("part of the fleet cannot be asked",
		"topic", p.query.Topic, "missing", strings.Join(e.Missing, ", "), "partial", p.query.Partial, "reasons", e.Msg)
	if p.query.Partial && !p.alone {
		return nil
	}
	return e
}
