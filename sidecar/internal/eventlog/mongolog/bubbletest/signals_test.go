package bubbletest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/wakeup"
	"github.com/sluice-bus/sluice/test/mongomodel"
)

// follower is a log that follows some topics, and counts what it hears and how often it asks the
// server for more.
type follower struct {
	log    *mongolog.Log
	tails  *tail.Tails
	heard  atomic.Int64
	mu     sync.Mutex
	about  []string // topics of what was heard
	missed []string
	asked  map[string]int // commands
}

func newFollower(t *testing.T, set *mongomodel.Set, topics ...string) *follower {
	f := &follower{tails: tail.New(tail.DefaultBounds()), asked: map[string]int{}}
	f.log = open(t, set, mongolog.Options{Monitor: &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked[e.CommandName]++
	}}})
	for _, topic := range topics {
		f.watch(topic)
	}
	return f
}

func (f *follower) watch(topic string) *tail.Watch { return f.tails.Watch(topic, func() {}) }

// follow follows until the test ends.
func (f *follower) follow(t *testing.T) *follower {
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		err := f.log.Follow(ctx, f.tails.Topics, func(s eventlog.Signal, missed []string) {
			f.heard.Add(1)
			f.mu.Lock()
			defer f.mu.Unlock()
			f.missed = append(f.missed, missed...)
			for _, h := range s.Appended {
				f.about = append(f.about, h.Topic)
			}
		})
		if err != nil {
			t.Errorf("Follow: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		following.Wait()
	})
	return f
}

// since returns the topics of signals heard and missed since the last call, a topic once for each
// signal.
func (f *follower) since() (about, missed []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	about, missed, f.about, f.missed = f.about, f.missed, nil, nil
	return about, missed
}

func (f *follower) commands(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[name]
}

func topic(i int) string { return fmt.Sprint("orders.", i) }

func appended(topic string) eventlog.Signal {
	return eventlog.Signal{Appended: []eventlog.Hint{{Topic: topic, Partition: 1, Head: 7}}}
}

// TestALoneEventWakesItsReaders: of 200 sidecars that read 200 topics, a signal wakes the two that
// read its topic, and few others whose topics share its slot.
func TestALoneEventWakesItsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true})
		t.Cleanup(set.Close)
		const n = 200
		var fleet []*follower
		for i := range n {
			fleet = append(fleet, newFollower(t, set, topic(i), topic((i+1)%n)).follow(t))
		}
		time.Sleep(time.Minute)
		most := 0
		for of := range n / 5 {
			heard, asked := make([]int64, n), make([]int, n)
			for i, f := range fleet {
				heard[i], asked[i] = f.heard.Load(), f.commands("getMore")
			}
			fleet[n/2].log.Send(appended(topic(of)))
			time.Sleep(100 * time.Millisecond)
			readers, others := 0, 0
			for i, f := range fleet {
				switch woken := f.heard.Load() > heard[i]; {
				case woken && (i == of || (i+1)%n == of):
					readers++
				case woken:
					others++
				case f.commands("getMore")-asked[i] > 2:
					t.Error("a sidecar that heard nothing was woken")
				}
			}
			if readers != 2 || others > 10 {
				t.Errorf("a signal of topic %d was heard by %d of its 2 readers, and by %d others", of, readers, others)
			}
			most = max(most, others)
		}
		t.Logf("no signal was heard by more than %d sidecars that do not read its topic", most)
	})
}

// If a topic is new to a follower, the follower says that it may have missed signals of this topic,
// and of no others than those in the same collection. A follower soon stops to follow a topic that
// is not wanted any more.
func TestWantedTopicsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true})
		t.Cleanup(set.Close)
		from, f := newFollower(t, set), newFollower(t, set).follow(t)
		expect := func(what string, wantAbout, wantMissed []string) {
			t.Helper()
			time.Sleep(time.Second)
			about, missed := f.since()
			slices.Sort(about)
			slices.Sort(missed)
			if !slices.Equal(about, wantAbout) || !slices.Equal(missed, wantMissed) {
				t.Errorf("%s: heard of %v, missed %v; want %v and %v", what, about, missed, wantAbout, wantMissed)
			}
		}
		send := func(topics ...string) {
			for _, topic := range topics {
				from.log.Send(appended(topic))
			}
		}
		time.Sleep(time.Minute)
		if n := f.commands("getMore") + f.commands("find"); n > 2 {
			t.Errorf("who reads nothing made %d commands", n)
		}
		send("a", "b", "c")
		expect("nothing is wanted", nil, nil)
		a := f.watch("a")
		expect("the first", nil, []string{"a"})
		b := f.watch("b")
		expect("another", nil, []string{"b"})
		send("a", "b", "c")
		expect("both", []string{"a", "b"}, nil)
		b.Close()
		send("a", "b")
		expect("one is not wanted any more", []string{"a", "b"}, nil)
		time.Sleep(10 * time.Second)
		send("a", "b")
		expect("some time after that", []string{"a"}, nil)
		a.Close()
		time.Sleep(time.Minute)
		before := f.commands("getMore")
		send("a", "b")
		expect("nothing is wanted again", nil, nil)
		if n := f.commands("getMore") - before; n > 0 {
			t.Errorf("who reads nothing any more asked %d times", n)
		}
	})
}

// TestSignalsAcrossAnElection: followers go to the new primary once their driver knows it, though
// the old one keeps their cursors, and say that they may have missed something.
func TestSignalsAcrossAnElection(t *testing.T) {
	for name, fail := range map[string]func(set *mongomodel.Set, primary int){
		"step down": (*mongomodel.Set).StepDown,
		"kill":      (*mongomodel.Set).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := mongomodel.New(mongomodel.Options{HelloWait: time.Second})
				t.Cleanup(set.Close)
				from, f := newFollower(t, set), newFollower(t, set, "a").follow(t)
				time.Sleep(time.Second)
				f.since()
				old := set.Primary()
				fail(set, old)
				for set.Primary() < 0 || set.Primary() == old {
					time.Sleep(100 * time.Millisecond)
				}
				set.Lag(old, time.Hour) // the old primary does not hear later writes
				time.Sleep(2 * time.Second)
				if _, missed := f.since(); !slices.Equal(missed, []string{"a"}) {
					t.Errorf("missed %v; want a", missed)
				}
				from.log.Send(appended("a"))
				time.Sleep(time.Second)
				if about, _ := f.since(); !slices.Equal(about, []string{"a"}) {
					t.Errorf("heard of %v; want a", about)
				}
			})
		})
	}
}

// TestManySignalsWhileFollowingBegins: the signals behind which a follower wanted to begin are
// gone. It says that it missed some, and hears the later ones, however many there are.
func TestManySignalsWhileFollowingBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true, Fault: func(q mongomodel.Request) (f mongomodel.Fault) {
			if _, err := q.Body.LookupErr("tailable"); err == nil {
				f.Delay = 4 * time.Second
			}
			return f
		}})
		t.Cleanup(set.Close)
		from, f := newFollower(t, set), newFollower(t, set, "a").follow(t)
		for n := range uint64(500) {
			s := eventlog.Signal{}
			for p := range 200 {
				s.Appended = append(s.Appended, eventlog.Hint{Topic: "a", Partition: p, Head: n + 1})
			}
			from.log.Send(s)
			time.Sleep(25 * time.Millisecond)
		}
		if about, missed := f.since(); len(about) < 100*200 || len(missed) < 2 {
			t.Errorf("heard of %d partitions, missed %v; want 100 of 500 signals at least, and a missed twice", len(about), missed)
		}
	})
}

// TestFollowingWhileIdle counts what sidecars cost that read two topics of 8 partitions each, and
// nothing is published: the cursors of signals, and asking the log in case one was lost.
func TestFollowingWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true})
		t.Cleanup(set.Close)
		const n, span = 50, 2 * time.Minute
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		var fleet []*follower
		for i := range n {
			f := newFollower(t, set, topic(i), topic((i+1)%n))
			if _, err := f.log.EnsureTopic(ctx, topic(i), 8); err != nil {
				t.Fatal(err)
			}
			fleet = append(fleet, f)
		}
		for _, f := range fleet {
			w := wakeup.New(wakeup.Config{Log: f.log, Tails: f.tails, Logger: slog.New(slog.DiscardHandler)})
			running.Go(func() { _ = w.Run(ctx) })
		}
		time.Sleep(time.Minute)
		commands := func() (all int) {
			for _, f := range fleet {
				f.mu.Lock()
				for _, n := range f.asked {
					all += n
				}
				f.mu.Unlock()
			}
			return all
		}
		before := commands()
		time.Sleep(span)
		perSecond := float64(commands()-before) / span.Seconds()
		t.Logf("an idle sidecar makes %.2f commands a second, 200 make %.0f", perSecond/n, 200*perSecond/n)
		if perSecond > 0.4*n {
			t.Errorf("%d idle sidecars make %.1f commands a second, want %.0f at most", n, perSecond, 0.4*n)
		}
		cancel()
		running.Wait()
	})
}
