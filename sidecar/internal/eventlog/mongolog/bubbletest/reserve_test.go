package bubbletest

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// The primary steps down while it answers a reservation. Whatever became of the reservation, no
// reader waits at a hole.
func TestAStepdownDuringAReservation(t *testing.T) {
	for name, fault := range map[string]mongomodel.Fault{
		"its answer is lost":                 {LoseAnswer: true},
		"it is lost":                         {LoseRequest: true},
		"the primary steps down as it waits": {},
		"the primary has stepped down":       {Delay: 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var set *mongomodel.Set
				stepsDown := false
				set = mongomodel.New(mongomodel.Options{Polling: true, Fault: func(r mongomodel.Request) mongomodel.Fault {
					if !stepsDown || r.Command != "findAndModify" {
						return mongomodel.Fault{}
					}
					stepsDown = false
					time.AfterFunc(2*time.Millisecond, func() { set.StepDown(r.Member) })
					return fault
				}})
				t.Cleanup(set.Close)
				l := open(t, set, mongolog.Options{})
				withTopic(t, l)
				stored(t, l, eventlogtest.Events("a", 1), 1)
				for i := range 3 {
					set.Lag(i, 4*time.Millisecond)
				}
				stepsDown = true
				began := time.Now()
				stored(t, l, eventlogtest.Events("b", 1), 2)
				wantNext(t, l, 2, 2)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// The answer to a reservation is lost, and another sidecar reserves before its sender asks.
func TestALostReservationAndARival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		losing := false
		set := mongomodel.New(mongomodel.Options{Polling: true, Fault: func(r mongomodel.Request) mongomodel.Fault {
			lost := losing && r.Command == "findAndModify"
			losing = losing && !lost
			return mongomodel.Fault{LoseAnswer: lost, Silent: lost}
		}})
		t.Cleanup(set.Close)
		a, commands := counted(t, set)
		b := open(t, set, mongolog.Options{})
		withTopic(t, a)
		stored(t, a, eventlogtest.Events("before", 1), 1)
		losing = true
		time.AfterFunc(time.Second, func() { stored(t, b, eventlogtest.Events("b", 2), 4, 5) })
		before := commands.Load()
		stored(t, a, eventlogtest.Events("a", 2), 6, 7)
		if n := commands.Load() - before; n != 4 {
			t.Errorf("%d commands; want the lost reservation, its question, another reservation and the insert", n)
		}
		wantNext(t, a, 2, 4, 5, 6, 7)
	})
}

// At w: 1 a primary that was cut off gives out seqs that the next primary does not know of. The
// seqs of a sidecar rise all the same, also once the topic's policy says majority.
func TestSeqsRiseAcrossAFailover(t *testing.T) {
	for _, then := range []string{"w:1", "majority"} {
		t.Run("then "+then, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := mongomodel.New(mongomodel.Options{Polling: true})
				t.Cleanup(set.Close)
				concern := "w:1"
				l := open(t, set, mongolog.Options{WriteConcern: func(string) string { return concern }})
				withTopic(t, l)
				stored(t, l, eventlogtest.Events("a", 1), 1)
				set.Isolate(0)
				stored(t, l, eventlogtest.Events("b", 5), 2, 3, 4, 5, 6)
				concern = then
				time.Sleep(time.Minute)
				stored(t, l, eventlogtest.Events("c", 2), 7, 8)
				stored(t, l, eventlogtest.Events("d", 1), 9)
				wantNext(t, l, 2, 7, 8, 9)
			})
		})
	}
}

// A sidecar still talks to a primary that was replaced, and whose head is behind. It gets no seqs
// there: one of them may be in a hole below an event that another sidecar has stored since.
func TestAReservationOfAReplacedPrimary(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		withTopic(t, s.Log)
		stored(t, s.Log, eventlogtest.Events("before", 1), 1)
		behind, err := mongolog.Open(mongolog.Options{URL: strings.Replace(s.set.URI(), "/?", "/"+database+"?", 1),
			Timeout: time.Minute, Dialer: s.set.Dialer("behind"), Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { behind.Close() })
		eventlogtest.WantPosition(t, behind, "t", 1)
		s.set.Isolate(0)
		for _, cut := range [][2]string{{"behind", "m1"}, {"behind", "m2"}, {"sidecar", "m0"}, {"beside", "m0"}} {
			s.set.Part(cut[0], cut[1])
		}
		time.Sleep(12 * time.Second)
		reserve(t, s, 3)
		stored(t, open(t, s.set, mongolog.Options{}), eventlogtest.Events("other", 1), 5)
		time.AfterFunc(time.Second, s.set.JoinAll)
		stored(t, behind, eventlogtest.Events("later", 1), 6)
	})
}
