package federation

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
)

// TestFailover: the sidecar in front dies midway, and another one on its store goes on, with
// nothing twice and nothing missed.
func TestFailover(t *testing.T) {
	for name, trouble := range map[string]func(*server){
		"dies":                  func(s *server) { s.dieAfter.Store(617) },
		"dies at once":          func(s *server) { s.dieAfter.Store(1) },
		"stalls":                func(s *server) { s.stallAfter.Store(900) },
		"has no store":          func(s *server) { s.answer.Store(503) },
		"is on another store":   func(s *server) { other := "other"; s.actualID.Store(&other) },
		"does not know exports": func(s *server) { s.answer.Store(404) },
	} {
		for _, descending := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				self := edge("self", 700, 1, 3)
				region := newMemory(series(1500, 2, 2, "region")...)
				bad, good := serve(t, newNode("bad", "region", region, newMemory())), serve(t, newNode("good", "region", region, newMemory()))
				trouble(bad)
				want := merged(self, bad.node)
				if descending {
					slices.Reverse(want)
				}
				// Which one is asked first is chance: go on until it was the bad one.
				for range 100 {
					f := newFleet(t, soon(config(self, bad.peer(), good.peer())))
					wantExport(t, f, replay.FleetQuery{Scan: eventlog.ScanQuery{Descending: descending}}, want)
					if bad.lastQuery.Load() != nil || bad.answer.Load() != 0 {
						return
					}
				}
				t.Fatal("the bad one was never asked")
			})
		}
	}
}

// TestAStoreIsAskedAgain where its one sidecar breaks off and is still there, as one does whose
// client took too long.
func TestAStoreIsAskedAgain(t *testing.T) {
	self, a := edge("self", 1000, 1, 3), edge("a", 5000, 2, 2)
	s := serve(t, a)
	s.dieAfter.Store(1500)
	wantExport(t, newFleet(t, soon(config(self, s.peer()))), replay.FleetQuery{}, merged(self, a))
	if n := s.exports.Load(); n != 4 {
		t.Errorf("asked %d times, want 4", n)
	}
}

// TestADeadStoreBreaksTheAnswerOff, and is never taken for its end, also where a partial answer
// would do.
func TestADeadStoreBreaksTheAnswerOff(t *testing.T) {
	self, a := edge("self", 1000, 1, 3), edge("a", 5000, 2, 2)
	s := serve(t, a)
	s.dieAfter.Store(1500)
	s.afterwards.Store(500) // whoever asks again gets no more
	var log lockedbuffer.Buffer
	c := soon(config(self, s.peer()))
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	st := mustOpen(t, newFleet(t, c), replay.FleetQuery{Partial: true})
	g, err := drain(st, 1)
	if err != nil || len(st.Missing()) > 0 {
		t.Fatal(err, st.Missing())
	}
	rest, err := drain(st, 0)
	name := "a (" + s.address + ")"
	wantPartial(t, err, name)
	if _, again := drain(st, 1); again != err {
		t.Errorf("and then %v", again)
	}
	got := append(g.ids(), rest.ids()...)
	if !slices.Equal(got, merged(self, a)[:len(got)]) || !slices.Equal(st.Missing(), []string{name}) {
		t.Errorf("%d events, missing %q", len(got), st.Missing())
	}
	if !strings.Contains(log.String(), "replay of the fleet failed") {
		t.Errorf("the log says\n%s", log.String())
	}
}

// TestDisorderBreaksTheAnswerOff: a part that resumes behind the later of two events in the wrong
// order never sends the earlier one.
func TestDisorderBreaksTheAnswerOff(t *testing.T) {
	self, a := edge("self", 1000, 1, 3), edge("a", 5000, 2, 2)
	s := serve(t, a)
	a.log.events[500], a.log.events[501] = a.log.events[501], a.log.events[500]
	g, err := drain(mustOpen(t, newFleet(t, soon(config(self, s.peer()))), replay.FleetQuery{}), 0)
	if wantPartial(t, err, "a ("+s.address+")"); len(g.ids()) < 500 {
		t.Errorf("%d events came before", len(g.ids()))
	}
}

// TestADeadSpoolBreaksTheAnswerOff though its sidecar would answer again: what it has then is not
// what it had.
func TestADeadSpoolBreaksTheAnswerOff(t *testing.T) {
	region := newMemory(series(2000, 1, 2, "region")...)
	b := serve(t, newNode("b", "region", region, newMemory(series(2000, 2, 2, "spool")...)))
	c := serve(t, newNode("c", "region", region, newMemory()))
	b.trouble = replay.PartSpool
	b.dieAfter.Store(1000)
	f := newFleet(t, soon(config(edge("self", 1, 1, 1), b.peer(), c.peer())))
	g, err := drain(mustOpen(t, f, replay.FleetQuery{Partial: true}), 0)
	wantPartial(t, err, "b ("+b.address+")")
	if want := merged(b.node, edge("self", 1, 1, 1)); !slices.Equal(g.ids(), want[:len(g.ids())]) || len(g.ids()) < 1000 {
		t.Errorf("%d events before", len(g.ids()))
	}
}
