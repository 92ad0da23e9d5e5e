package simulation

import "slices"

// combinations draw faults that hurt together. Faults that are drawn one by one hardly ever meet in
// these ways.
var combinations = []struct {
	name string
	draw func(d dice, p *plan) []fault
}{
	{"usurped", usurped}, {"lagging", lagging}, {"late-save", lateSave}, {"late-take", lateTake}, {"slow-take", slowTake},
	{"frozen", frozen}, {"one-request", oneRequest}, {"deployment", deployment}, {"late-insert", lateInsert}, {"caught", caught},
}

// combination draws a combination, or takes the mix's. If the mix lacks one of its kinds of faults,
// a single fault takes its place.
func (d dice) combination(p *plan, m mix) []fault {
	c := combinations[d.IntN(len(combinations))]
	for _, only := range combinations {
		if only.name == m.only {
			c = only
		}
	}
	faults := c.draw(d, p)
	for i := range faults {
		known := true
		faults[i].each(0, func(f fault, _ ms) { known = known && slices.Contains(m.kinds, f.Kind) })
		if !known {
			return []fault{d.fault(p, m)}
		}
	}
	return faults
}

// when is a moment for a combination to begin.
func (d dice) when(p *plan) ms { return d.between(1000, p.Lasts*2/3) }

// usurped parts the primary from the other members, not from the sidecars, until another has long
// been elected. Its writes meanwhile are rolled back. Sidecars turn to the new primary when the old
// one is killed, or when they are parted from it.
func usurped(d dice, p *plan) []fault {
	f := fault{Kind: partMember, Primary: true, At: d.when(p), For: d.between(11_000, 40_000)}
	switch d.IntN(3) {
	case 0:
		turn := d.between(9000, 25_000)
		f.Then = append(f.Then, fault{Kind: killMember, At: turn, For: d.between(50, 20_000)})
		if d.chance(50) { // before it saves again what it has saved there
			f.Then = append(f.Then, fault{Kind: killSidecar, Sidecar: d.IntN(p.Sidecars), At: turn + d.between(10, 500), For: d.between(50, 20_000)})
		}
	case 1:
		for s := range p.Sidecars {
			if d.chance(50) {
				f.Then = append(f.Then, fault{Kind: partSidecar, Sidecar: s, At: d.between(1000, 22_000), For: d.between(1000, 20_000)})
			}
		}
	}
	return []fault{f}
}

// caught is usurped while inserts are on their way, at seqs that were reserved before.
func caught(d dice, p *plan) []fault {
	faults := usurped(d, p)
	return append(faults, fault{
		Kind: slowRequests, Sidecar: everySidecar, At: faults[0].At - 1000, For: d.between(1000, 15_000), By: d.between(100, 2000),
		Seed:    d.Uint64(),
		Percent: 100, Command: "insert", Collection: "events",
	})
}

// lagging has the secondaries come behind, and then takes the primary away.
func lagging(d dice, p *plan) []fault {
	at, lasts := d.when(p), d.between(3000, 30_000)
	end := fault{Kind: killMember, Primary: true, At: at + d.between(500, lasts), For: d.between(11_000, 30_000)}
	if d.chance(30) {
		end.Kind = stepdown
	}
	faults := []fault{end}
	for i := range p.Members {
		if d.chance(70) {
			faults = append(faults, fault{Kind: lagMember, Member: i, At: at, For: lasts, By: d.between(50, 8000)})
		}
	}
	return faults
}

// lateSave delays saves of a sidecar, and ends the sidecar before they arrive: a late save is its
// last.
func lateSave(d dice, p *plan) []fault {
	s := d.IntN(p.Sidecars)
	f := fault{
		Kind: late, Sidecar: s, At: d.when(p), For: d.between(500, 6000), By: d.between(2000, 20_000), Seed: d.Uint64(), Percent: 20 + d.upTo(80),
		Command: "update", Collection: "epochs",
	}
	if d.chance(20) {
		f.Collection = "nodes"
	}
	ends := []faultKind{killSidecar, killSidecar, stopSidecar, pauseSidecar, isolate}
	f.Then = []fault{{Kind: ends[d.IntN(len(ends))], Sidecar: s, At: d.between(500, 15_000), For: d.between(50, 25_000)}}
	return []fault{f}
}

// lateTake delays commands on epochs while partitions move, and kills a sidecar that may have taken
// some.
func lateTake(d dice, p *plan) []fault {
	moves := []faultKind{stopSidecar, stopSidecar, killSidecar, pauseSidecar}
	f := fault{Kind: moves[d.IntN(len(moves))], Sidecar: d.IntN(p.Sidecars), At: d.when(p), For: d.between(50, 20_000)}
	begins := ms(0)
	if f.Kind != stopSidecar {
		begins = 8000
	}
	f.Then = []fault{
		{
			Kind: late, Sidecar: everySidecar, At: begins, For: d.between(500, 8000), By: d.between(1000, 20_000), Seed: d.Uint64(),
			Percent: 20 + d.upTo(60), Collection: "epochs",
		},
		{Kind: killSidecar, Sidecar: d.IntN(p.Sidecars), At: begins + d.between(500, 20_000), For: d.between(50, 20_000)},
	}
	return []fault{f}
}

// slowTake keeps a sidecar quiet until others take its partitions, and slows the others down, so
// that it comes back meanwhile.
func slowTake(d dice, p *plan) []fault {
	quiet := []faultKind{pauseSidecar, isolate, suspendSidecar}
	return []fault{{
		Kind: quiet[d.IntN(len(quiet))], Sidecar: d.IntN(p.Sidecars), At: d.when(p), For: d.between(8000, 12_000),
		Then: []fault{{
			Kind: slowRequests, Sidecar: everySidecar, At: 4000, For: 20_000, By: d.between(500, 4000), Seed: d.Uint64(), Percent: 100,
			Command: "insert", Collection: "epochs",
		}},
	}}
}

// frozen stops several sidecars for longer than their leases, now and then while a member is behind
// the others.
func frozen(d dice, p *plan) (faults []fault) {
	quiet := []faultKind{pauseSidecar, suspendSidecar, isolate}
	if d.chance(50) {
		faults = append(faults, fault{Kind: lagMember, Member: 1 + d.IntN(p.Members-1), At: 0, For: p.Lasts, By: d.between(1000, 20_000)})
	}
	for range d.upTo(2) {
		f := fault{Kind: quiet[d.IntN(len(quiet))], Sidecar: d.IntN(p.Sidecars), At: d.when(p), For: d.between(10_000, 40_000)}
		if d.chance(50) { // comes back while its members' deliveries are still in force
			f.Kind, f.For = pauseSidecar, d.between(10_000, 16_000)
		}
		faults = append(faults, f)
	}
	return faults
}

// oneRequest does the same to all requests of one kind, and then ends a sidecar.
func oneRequest(d dice, p *plan) []fault {
	of := requests[d.IntN(len(requests))]
	s := d.IntN(p.Sidecars)
	f := fault{
		Kind: ofRequests[d.IntN(len(ofRequests))], Sidecar: s, At: d.when(p), For: d.between(500, 20_000), Seed: d.Uint64(),
	}
	d.strength(&f)
	f.Command, f.Collection = of[0], of[1]
	if d.chance(40) {
		f.Sidecar = everySidecar
	}
	if d.chance(50) {
		f.Then = []fault{{Kind: killSidecar, Sidecar: s, At: d.between(0, 10_000), For: d.between(50, 20_000)}}
	}
	return []fault{f}
}

// lateInsert has inserts of a sidecar arrive when their seqs are void, and keeps the sidecar dead
// until then. Most publishers use no other sidecar.
func lateInsert(d dice, p *plan) []fault {
	s, by := d.IntN(p.Sidecars), d.between(70_000, 200_000)
	for i := range p.Publishers {
		if d.chance(80) {
			p.Publishers[i].Sidecars = []int{s}
		}
	}
	lasts := d.between(200, 2000)
	return []fault{{
		Kind: late, Sidecar: s, At: d.when(p), For: lasts, By: by, Seed: d.Uint64(), Percent: 100, Command: "insert", Collection: "events",
		Then: []fault{{Kind: killSidecar, Sidecar: s, At: lasts - 50, For: by + d.between(10, 5000)}},
	}}
}

// deployment ends all sidecars, one after the other, and starts them again; now and then while the
// store is away.
func deployment(d dice, p *plan) (faults []fault) {
	at, kind := d.when(p), stopSidecar
	if d.chance(30) {
		kind = killSidecar
	}
	if d.chance(30) {
		faults = append(faults, fault{Kind: outage, At: max(0, at-d.between(0, 5000)), For: d.between(1000, 20_000)})
	}
	for s := range p.Sidecars {
		faults = append(faults, fault{Kind: kind, Sidecar: s, At: at, For: d.between(50, 5000)})
		at += d.between(0, 4000)
	}
	return faults
}
