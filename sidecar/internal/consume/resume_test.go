package consume

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// A client that resumes behind an event is sent the later events, and no others.
func TestTrail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.IntRange(1, 4).Draw(t, "partitions")
		starts := make([]uint64, parts)
		for i := range starts {
			starts[i] = uint64(rapid.IntRange(1, 5).Draw(t, "start"))
		}
		tr := newTrail(session.SubscriptionKey{Topic: "t"}, slices.Clone(starts), nil)
		type at struct {
			id     string
			behind []uint64
		}
		var model []at
		next := slices.Clone(starts)
		for i := range rapid.IntRange(0, trailSteps+20).Draw(t, "events") {
			p := (i * 7 / 3) % parts
			e := wire.Event{ID: fmt.Sprint("e", i), Partition: p, Seq: next[p] + uint64(i%3)} // with gaps
			tr.add(stepOf(&e))
			next[p] = e.Seq + 1
			model = append(model, at{e.ID, slices.Clone(next)})
		}
		for i, m := range model {
			got := tr.behind(m.id)
			if len(model)-i > trailSteps {
				if got != nil {
					t.Fatalf("%s of %d is remembered: %v", m.id, len(model), got)
				}
				continue
			}
			for p := range got { // what lies between is a gap
				sent := slices.ContainsFunc(model[i+1:], func(later at) bool { return later.behind[p] != m.behind[p] })
				if got[p] < m.behind[p] || !sent && got[p] != m.behind[p] {
					t.Fatalf("behind %s: %v, want %v", m.id, got, m.behind)
				}
			}
			if after, known := tr.after(m.id); got == nil || !known || len(after) != len(model)-i-1 || len(after) > 0 &&
				after[0].id != model[i+1].id {
				t.Fatalf("%s is forgotten, or what came after: %v", m.id, after)
			}
		}
		if got := tr.behind("other"); got != nil {
			t.Fatalf("behind an unknown event: %v", got)
		}
	})
}

// A bounded number of streams is remembered, the last ones: of all clients, and of each. Their memory
// is counted as long as they are.
func TestKeptTrails(t *testing.T) {
	const most = 8
	places := budget.DefaultPlaces()
	places[budget.Trails] = most
	all := budget.New(budget.Bounds{Memory: 1 << 20, Places: places, Identities: true})
	var x streams
	k := session.SubscriptionKey{Topic: "t"}
	x.keep(newTrail(k, []uint64{1}, all.Of("a")))
	keep := func(identity string, i int) {
		tr := newTrail(k, []uint64{1, 1}, all.Of(identity))
		tr.add(step{fmt.Sprint(i), i % 2, uint64(i + 1)})
		x.keep(tr)
	}
	for i := range 10 {
		keep("a", i)
	}
	if len(x.trails) != most/budget.SharesOfAll || x.resume(k, "7") != nil || x.resume(session.SubscriptionKey{Topic: "other"}, "8") != nil {
		t.Errorf("%d trails of one client", len(x.trails))
	}
	if got := x.resume(k, "8"); !slices.Equal(got, []uint64{10, 1}) {
		t.Errorf("behind 8: %v", got)
	}
	for i := range 20 {
		keep(fmt.Sprint("client ", i), i)
	}
	want := 0
	for _, tr := range x.trails {
		want += tr.steps[0].size()
	}
	if len(x.trails) != most || all.Used() != int64(want) {
		t.Errorf("%d trails, which take %d bytes; want %d, %d", len(x.trails), all.Used(), most, want)
	}
}

// TestTrailWithoutMemory: a trail gets no longer then, and still ends with the last event.
func TestTrailWithoutMemory(t *testing.T) {
	all := budget.New(budget.Bounds{Memory: 1 << 20})
	memory := all.Of("a")
	tr := newTrail(session.SubscriptionKey{}, nil, memory)
	for i := range 300 {
		switch i {
		case 100:
			memory.Take(1 << 20)
		case 250:
			memory.Give(1 << 20)
		}
		tr.add(step{id: fmt.Sprint(i)})
	}
	steps, known := tr.after("290")
	if !known || len(steps) != 9 || steps[8].id != "299" || len(tr.steps) != 100 {
		t.Errorf("%d of %d steps after 290, %v", len(steps), len(tr.steps), known)
	}
	if tr.free(); all.Used() != 0 {
		t.Errorf("%d bytes are left taken", all.Used())
	}
}

// An idle stream says every 15 s that it is alive.
func TestStreamHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 46*time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		c := New(Config{Bounds: session.DefaultBounds()})
		s := c.newStream(new(session.Session), newAnswer(w), session.SubscriptionKey{}, "")
		defer s.answer.close()
		s.serve(ctx)
		s.out.Cut(time.Now())
		s.out.Wait()
		if got := w.Body.String(); got != ":\n\n:\n\n:\n\n" || !w.Flushed {
			t.Errorf("%q", got)
		}
	})
}
