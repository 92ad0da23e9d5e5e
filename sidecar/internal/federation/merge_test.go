package federation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/test/require"
)

// world is a fleet that rapid drew: stores, and sidecars on them.
type world struct {
	stores []*memory
	nodes  []*node
}

// drawWorld makes stores with ids that others may have, too. A spool has events of its own and
// copies of its store's; free lets the copies have another ts.
func drawWorld(t *rapid.T, free bool) *world {
	w := &world{}
	ts := rapid.Int64Range(1, 12)
	for i := range rapid.IntRange(1, 4).Draw(t, "stores") {
		var log []*eventlog.Record
		for _, id := range rapid.SliceOfDistinct(rapid.IntRange(0, 40), rapid.ID).Draw(t, "ids") {
			log = append(log, record(ts.Draw(t, "ts"), drawnID(id), rapid.SampledFrom([]string{"", "k"}).Draw(t, "key"), fmt.Sprint("store ", i)))
		}
		store := newMemory(log...)
		w.stores = append(w.stores, store)
		shared := rapid.Bool().Draw(t, "shared")
		on := 1
		if shared {
			on = rapid.IntRange(1, 3).Draw(t, "sidecars")
		}
		for j := range on {
			name := fmt.Sprintf("node-%d-%d", i, j)
			var spool *memory
			if shared {
				spool = newMemory(drawSpool(t, name, log, ts, free)...)
			}
			w.nodes = append(w.nodes, newNode(name, fmt.Sprint("store-", i), store, spool))
		}
	}
	return w
}

// drawnID is an id that JSON escapes, or not.
func drawnID(n int) string { return []string{`id-`, `id"`}[n%2] + fmt.Sprintf("%02d", n) }

func drawSpool(t *rapid.T, name string, log []*eventlog.Record, ts *rapid.Generator[int64], free bool) (out []*eventlog.Record) {
	for _, r := range log {
		if rapid.IntRange(0, 3).Draw(t, "copied") == 0 {
			c := *r
			c.Spooled = true
			if free && rapid.Bool().Draw(t, "moved") {
				c.TS = ts.Draw(t, "ts")
			}
			out = append(out, &c)
		}
	}
	for k := range rapid.IntRange(0, 4).Draw(t, "waiting") {
		id := fmt.Sprintf("%s-%d", name, k)
		if free {
			id = fmt.Sprintf("spooled-%d", k)
		}
		r := record(ts.Draw(t, "ts"), id, "", name)
		r.Spooled = true
		out = append(out, r)
	}
	return out
}

// want is what a replay of the world has to be, by the plain definition.
func (w *world) want(q eventlog.ScanQuery) (out []eventlog.Point) {
	var all []*eventlog.Record
	for _, s := range w.stores {
		all = append(all, s.events...)
	}
	for _, n := range w.nodes {
		if n.spool != nil {
			all = append(all, n.spool.events...)
		}
	}
	slices.SortStableFunc(all, func(a, b *eventlog.Record) int {
		if c := pointOf(a).Compare(pointOf(b)); q.Descending {
			return -c
		} else {
			return c
		}
	})
	had := map[string]bool{}
	for _, r := range all {
		if selects(q, r) && !had[r.ID] {
			had[r.ID] = true
			out = append(out, pointOf(r))
		}
	}
	return out
}

func drawScan(t *rapid.T) eventlog.ScanQuery {
	q := eventlog.ScanQuery{Descending: rapid.Bool().Draw(t, "descending"), MinTS: rapid.Int64Range(0, 4).Draw(t, "min")}
	if rapid.Bool().Draw(t, "bounded") {
		q.MaxTS, q.HasMaxTS = rapid.Int64Range(3, 12).Draw(t, "max"), true
	}
	if rapid.Bool().Draw(t, "keyed") {
		k := "k"
		q.Key = &k
	}
	if !q.Descending && rapid.Bool().Draw(t, "after") {
		q.After = &eventlog.Point{TS: max(q.MinTS, rapid.Int64Range(0, 12).Draw(t, "after ts")),
			ID: drawnID(rapid.IntRange(0, 40).Draw(t, "after id"))}
	}
	return q
}

// TestOneExportIsTheUnionOnce: for any ids that parts share, at any places, one answer has each
// once, at its first place, in order; also where it remembers so few ids that it has to ask for
// them.
func TestOneExportIsTheUnionOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, true)
		q := drawScan(t)
		f := inMemory(config(w.nodes[0]), w.nodes[1:]...)
		s, err := f.Open(t.Context(), replay.FleetQuery{Topic: topic, Scan: q})
		require.NoError(t, err)
		defer s.Close()
		g, err := drain(s, 0)
		require.NoError(t, err)
		checkPlaces(t, g.places, w.want(q))
		for i, text := range g.texts {
			e, err := codec.ParseEvent([]byte(text))
			if err != nil || e.ID != g.places[i].ID || e.TS != g.places[i].TS {
				t.Fatalf("%v has the text %s, %v", g.places[i], text, err)
			}
			if e.Spooled && w.stored(q, g.places[i]) {
				t.Fatalf("%v is the spool's copy, and a store has it", g.places[i])
			}
		}
		total := int64(0)
		for _, p := range s.Parts() {
			total += p.Events
		}
		if total != int64(len(g.places)) {
			t.Fatalf("the parts gave %d events of %d", total, len(g.places))
		}
	})
}

func (w *world) stored(q eventlog.ScanQuery, p eventlog.Point) bool {
	return slices.ContainsFunc(w.stores, func(m *memory) bool {
		return slices.ContainsFunc(m.events, func(r *eventlog.Record) bool { return pointOf(r) == p && selects(q, r) })
	})
}

// TestPagesAreTheExport: pages of any size, each by a stream that knows nothing of those before,
// and of a fleet some of which is missing for a while, hand out every event once.
func TestPagesAreTheExport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, false)
		q := drawScan(t)
		f := inMemory(config(w.nodes[0]), w.nodes[1:]...)
		f.cfg.Remembered = rapid.SampledFrom([]int{2, 1000}).Draw(t, "remembered")
		limit := rapid.IntRange(1, 7).Draw(t, "limit")
		var places []eventlog.Point
		for next := (replay.FleetQuery{Topic: topic, Scan: q, Limit: limit, Start: q.After}); ; {
			s, err := f.Open(t.Context(), next)
			require.NoError(t, err)
			g, err := drain(s, limit)
			behind := s.Behind()
			s.Close()
			if err != nil || len(behind) > 0 {
				t.Fatal(err, behind)
			}
			places = append(places, g.places...)
			if len(g.places) < limit {
				break
			}
			next.Continued, next.Scan.After = true, &g.places[limit-1]
		}
		checkPlaces(t, places, w.want(q))
	})
}

// TestPagesOfAPartialFleet checks that all events missing on some pages come on later ones. An
// event comes twice only if another part handed it out and that part is missing when the copy
// comes: no sidecar can tell then.
func TestPagesOfAPartialFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, false)
		q := drawScan(t)
		limit := rapid.IntRange(1, 7).Draw(t, "limit")
		var places []eventlog.Point
		had := map[string]bool{}
		pages := 0
		for next := (replay.FleetQuery{Topic: topic, Scan: q, Limit: limit, Start: q.After, Partial: true}); ; pages++ {
			// The sidecar that is asked, and its store, are always there.
			others := slices.Clone(w.nodes[1:])
			there := &world{nodes: []*node{w.nodes[0]}}
			away := false
			for i := range others {
				if pages < 6 && rapid.Bool().Draw(t, "away") {
					gone := *others[i]
					gone.log, away = nil, true
					others[i] = &gone
				} else {
					there.nodes = append(there.nodes, others[i])
				}
			}
			f := inMemory(config(w.nodes[0]), others...)
			s, err := f.Open(t.Context(), next)
			require.NoError(t, err)
			g, err := drain(s, limit)
			behind, missing := s.Behind(), s.Missing()
			s.Close()
			if err != nil || away != (len(missing) > 0) && q.MinTS <= q.Upper() {
				t.Fatalf("%v, missing %q", err, missing)
			}
			for _, p := range g.places {
				if !had[p.ID] {
					places = append(places, p)
				} else if there.copies(p.ID) == w.copies(p.ID) {
					t.Fatalf("%v comes again on page %d, where everybody is who has it", p, pages)
				}
				had[p.ID] = true
			}
			if len(g.places) < limit && !away {
				break
			}
			next.Continued, next.Behind = true, behind
			if n := len(g.places); n > 0 && (next.Scan.After == nil || precedes(*next.Scan.After, g.places[n-1], q.Descending)) {
				next.Scan.After = &g.places[n-1]
			}
		}
		checkOnce(t, places, w.want(q))
	})
}

// copies counts the parts that have the id.
func (w *world) copies(id string) (n int) {
	parts := map[*memory]bool{}
	for _, n := range w.nodes {
		parts[n.log] = true
		if n.spool != nil {
			parts[n.spool] = true
		}
	}
	for m := range parts {
		if slices.ContainsFunc(m.events, func(r *eventlog.Record) bool { return r.ID == id }) {
			n++
		}
	}
	return n
}

// checkOnce: every id once. Which of its places it had depends on who was there.
func checkOnce(t *rapid.T, got, want []eventlog.Point) {
	ids := func(points []eventlog.Point) (out []string) {
		for _, p := range points {
			out = append(out, p.ID)
		}
		slices.Sort(out)
		return out
	}
	if g, w := ids(got), ids(want); !slices.Equal(g, w) {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(g, " "), strings.Join(w, " "))
	}
}

func checkPlaces(t *rapid.T, got, want []eventlog.Point) {
	if !slices.Equal(got, want) {
		t.Fatalf("got\n%v\nwant\n%v", got, want)
	}
}
