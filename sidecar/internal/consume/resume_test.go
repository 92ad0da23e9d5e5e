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
		tr := newTrail(session.SubscriptionKey{Topic: "t"}, slices.Clone(starts))
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

// A bounded number of streams is remembered, the last ones.
func TestKeptTrails(t *testing.T) {
	var x streams
	k := session.SubscriptionKey{Topic: "t"}
	x.keep(newTrail(k, []uint64{1}))
	for i := range keptTrails + 5 {
		tr := newTrail(k, []uint64{1, 1})
		tr.add(step{fmt.Sprint(i), i % 2, uint64(i + 1)})
		x.keep(tr)
	}
	if len(x.trails) != keptTrails || x.resume(k, "4") != nil || x.resume(session.SubscriptionKey{Topic: "other"}, "5") != nil {
		t.Errorf("%d trails", len(x.trails))
	}
	if got := x.resume(k, "5"); !slices.Equal(got, []uint64{1, 7}) {
		t.Errorf("behind 5: %v", got)
	}
}

// An idle stream says every 15 s that it is alive.
func TestStreamHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 46*time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		c := New(Config{Bounds: session.DefaultBounds()})
		s := c.newStream(nil, newAnswer(w), session.SubscriptionKey{}, "")
		defer s.answer.close()
		s.serve(ctx)
		s.out.Cut(time.Now())
		s.out.Wait()
		if got := w.Body.String(); got != ":\n\n:\n\n:\n\n" || !w.Flushed {
			t.Errorf("%q", got)
		}
	})
}
