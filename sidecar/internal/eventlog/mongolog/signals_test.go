package mongolog

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/sluice-bus/sluice/internal/mongotest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// heardSignal is one call of a follower.
type heardSignal struct {
	eventlog.Signal
	missed bool
	at     time.Time
}

// follow follows until the test ends, and returns what was heard, from the
// first call on, which says that signals may have been missed.
func follow(t *testing.T, l *Log) <-chan heardSignal {
	t.Helper()
	heard := make(chan heardSignal, 10_000)
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		err := l.Follow(ctx, func(s eventlog.Signal, missed bool) { heard <- heardSignal{s, missed, time.Now()} })
		if err != nil {
			t.Errorf("Follow: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		following.Wait()
	})
	if s := next(t, heard); !s.missed {
		t.Errorf("the first signal does not say that some were missed: %+v", s)
	}
	return heard
}

func next(t *testing.T, heard <-chan heardSignal) heardSignal {
	t.Helper()
	select {
	case s := <-heard:
		return s
	case <-time.After(patience):
		t.Fatal("nothing is heard")
		return heardSignal{}
	}
}

func appended(topic string, partition int, head uint64) eventlog.Signal {
	return eventlog.Signal{Appended: []eventlog.Hint{{Topic: topic, Partition: partition, Head: head}}}
}

// bothWays runs a test with signals on boards, and with a tailed collection.
func bothWays(t *testing.T, test func(t *testing.T, adapt func(*engine))) {
	t.Run("boards", func(t *testing.T) { test(t, func(e *engine) { e.uncapped = true }) })
	t.Run("tail", func(t *testing.T) { test(t, func(e *engine) { e.uncapped = false }) })
}

// A sidecar that leaves says so last of all; it closes its log at once.
func TestTheLastSignalIsSent(t *testing.T) {
	bothWays(t, func(t *testing.T, adapt func(*engine)) {
		open := sharedStore(t, adapt)
		stays, leaves := open(), open()
		at := follow(t, stays)
		leaves.Send(appended("orders", 0, 1))
		for next(t, at).Appended == nil {
		}
		leaves.Send(eventlog.Signal{Nodes: true})
		if err := leaves.Close(); err != nil {
			t.Fatal(err)
		}
		for !next(t, at).Nodes {
		}
	})
}

func TestSignals(t *testing.T) {
	bothWays(t, func(t *testing.T, adapt func(*engine)) {
		open := sharedStore(t, adapt)
		one, two, three := open(), open(), open()
		one.Send(appended("before", 0, 1)) // nobody follows yet
		at1, at2 := follow(t, one), follow(t, two)

		moved := eventlog.Signal{Moved: []eventlog.GroupName{{Topic: "orders", Group: "a.$b"}}}
		for _, s := range []eventlog.Signal{appended("orders", 3, 1<<62), moved, {Nodes: true}} {
			three.Send(s)
			for _, at := range []<-chan heardSignal{at1, at2} {
				got := next(t, at)
				for len(got.Appended) == 1 && got.Appended[0].Topic == "before" {
					got = next(t, at)
				}
				if fmt.Sprint(got.Signal) != fmt.Sprint(s) || got.missed {
					t.Errorf("heard %+v; want %+v", got, s)
				}
			}
		}
		three.Send(eventlog.Signal{}) // says nothing, so nothing is sent
		one.Send(appended("own", 0, 1))
		if got := next(t, at2); got.Appended[0].Topic != "own" {
			t.Errorf("heard %+v", got)
		}
		two.Send(appended("end", 0, 1))
		if got := next(t, at1); got.Appended[0].Topic != "end" {
			t.Errorf("a log heard %+v; the next of others was another", got)
		}
	})
}

// TestSignalsWhileBusy: nothing of what is sent gets lost on the way, merged
// or not.
func TestSignalsWhileBusy(t *testing.T) {
	bothWays(t, func(t *testing.T, adapt func(*engine)) {
		open := sharedStore(t, adapt)
		to, senders := open(), []*Log{open(), open(), open()}
		heard := follow(t, to)
		const each = 300
		for i, l := range senders {
			for n := range each {
				l.Send(appended("orders", i, uint64(n+1)))
			}
		}
		var heads [3]uint64
		signals := 0
		for slices.Min(heads[:]) < each {
			s := next(t, heard)
			if s.missed {
				t.Error("signals were missed")
			}
			signals++
			for _, h := range s.Appended {
				heads[h.Partition] = max(heads[h.Partition], h.Head)
			}
		}
		if signals > len(senders)*each/4 {
			t.Errorf("%d signals were sent in %d; want them merged", len(senders)*each, signals)
		}
	})
}

// TestSignalsAcrossRestart stops the server: what is sent meanwhile arrives, or
// followers say that they may have missed some.
func TestSignalsAcrossRestart(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, adapt func(*engine)) {
		s := mongotest.Start(t)
		if !s.CanStop() {
			t.Log("left out: this server cannot be stopped by a test")
			return
		}
		o := Options{URL: s.URI(s.NewDatabase(t)), Timeout: 2 * time.Second}
		from, to := openAdapted(t, o, adapt), openAdapted(t, o, adapt)
		heard := follow(t, to)
		from.Send(appended("orders", 0, 1))
		next(t, heard)
		s.Kill()
		begun := time.Now()
		for n := range uint64(1000) {
			from.Send(appended("orders", 0, n+2))
		}
		from.Send(eventlog.Signal{Nodes: true})
		if d := time.Since(begun); d >= o.Timeout {
			t.Errorf("sending while the server is away took %v", d)
		}
		s.Restart()
		var head uint64
		var nodes bool
		for head < 1001 || !nodes {
			s := next(t, heard)
			nodes = nodes || s.Nodes
			for _, h := range s.Appended {
				head = max(head, h.Head)
			}
			// A signal that came before the follower was back is lost,
			// and has to be asked for; here it is simply sent again.
			if s.missed {
				from.Send(appended("orders", 0, 1001))
				from.Send(eventlog.Signal{Nodes: true})
			}
		}
	})
}

// TestCloseEndsFollowing: Close does not hang, whatever is under way.
func TestCloseEndsFollowing(t *testing.T) {
	bothWays(t, func(t *testing.T, adapt func(*engine)) {
		l := sharedStore(t, adapt)()
		opened := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- l.Follow(context.Background(), func(eventlog.Signal, bool) { close(opened) })
		}()
		<-opened
		l.Send(eventlog.Signal{Nodes: true})
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-ended; err != errClosed {
			t.Errorf("Follow: %v; want that the log is closed", err)
		}
		l.Send(eventlog.Signal{Nodes: true})
	})
}

// TestSignalLatency measures from Send to heard, and what following costs
// while nothing is sent.
func TestSignalLatency(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, adapt func(*engine)) {
		s := mongotest.Shared(t)
		var commands counter
		o := Options{URL: s.URI(s.NewDatabase(t))}
		from := openAdapted(t, o, adapt)
		o.Monitor = &event.CommandMonitor{Started: commands.count}
		to := openAdapted(t, o, adapt)
		heard := follow(t, to)
		before, since := commands.n(), time.Now()
		if _, ok := within(heard, 2*time.Second); ok {
			t.Error("something was heard that nobody sent")
		}
		idle := float64(commands.n()-before) / time.Since(since).Seconds()
		var took []time.Duration
		for n := range uint64(100) {
			sent := time.Now()
			from.Send(appended("orders", 0, n+1))
			got := next(t, heard)
			if got.Appended[0].Head != n+1 {
				t.Fatalf("heard %+v; want head %d", got, n+1)
			}
			took = append(took, got.at.Sub(sent))
		}
		slices.Sort(took)
		t.Logf("from Send to heard: p50 %v, p99 %v; an idle follower sends %.1f commands a second", took[50], took[99], idle)
		if took[50] > time.Second {
			t.Errorf("half of the signals took longer than %v", took[50])
		}
		if most := 2 / boardIdle.Seconds(); idle > most {
			t.Errorf("an idle follower sends %.1f commands a second; want at most %.0f", idle, most)
		}
	})
}

func within(heard <-chan heardSignal, d time.Duration) (heardSignal, bool) {
	select {
	case s := <-heard:
		return s, true
	case <-time.After(d):
		return heardSignal{}, false
	}
}

// counter counts commands, but those of the driver's own.
type counter struct {
	mu       sync.Mutex
	commands []string
}

func (c *counter) count(_ context.Context, e *event.CommandStartedEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands = append(c.commands, e.CommandName)
}

func (c *counter) n() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.commands)
}

func TestSignalSet(t *testing.T) {
	t.Run("merges", func(t *testing.T) {
		var s signalSet
		if !s.empty() {
			t.Error("a new set is not empty")
		}
		s.add(appended("t", 0, 5))
		s.add(appended("t", 0, 3))
		s.add(appended("t", 1, 4))
		s.add(appended("t", 1, 0)) // more than 4, for all that is known
		s.add(appended("t", 1, 9))
		s.add(eventlog.Signal{Moved: []eventlog.GroupName{{Topic: "t", Group: "g"}, {Topic: "t", Group: "g"}}})
		d := s.doc()
		slices.SortFunc(d.Appended, func(a, b hintDoc) int { return a.Partition - b.Partition })
		if want := []hintDoc{{Topic: "t", Head: 5}, {Topic: "t", Partition: 1}}; !slices.Equal(d.Appended, want) || len(d.Moved) != 1 || d.Nodes || d.All {
			t.Errorf("merged: %+v", d)
		}
	})
	for name, fill := range map[string]func(s *signalSet, i int){
		"too many partitions": func(s *signalSet, i int) { s.add(appended("t", i, 1)) },
		"too many groups": func(s *signalSet, i int) {
			s.add(eventlog.Signal{Moved: []eventlog.GroupName{{Topic: "t", Group: fmt.Sprint(i)}}})
		},
		"names too long": func(s *signalSet, i int) { s.add(appended(fmt.Sprint(strings.Repeat("x", 1000), i), 0, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			var s signalSet
			s.add(eventlog.Signal{Nodes: true})
			for i := range 10 * maxSignalParts {
				fill(&s, i)
				if len(s.heads)+len(s.moved) > maxSignalParts || s.bytes > maxSignalBytes {
					t.Fatalf("%d partitions, %d groups, %d bytes", len(s.heads), len(s.moved), s.bytes)
				}
			}
			if d := s.doc(); !d.All || !d.Nodes || len(d.Appended)+len(d.Moved) > 0 {
				t.Errorf("too much became %+v", d)
			}
		})
	}
}

func TestBoard(t *testing.T) {
	var b board
	for range 3 * boardSignals {
		b.add(&signalDoc{Node: "n", Nodes: true})
	}
	if b.Last != 3*boardSignals || len(b.Signals) != boardSignals {
		t.Errorf("the board has number %d and %d signals", b.Last, len(b.Signals))
	}
	long := &signalDoc{Node: "n", Appended: []hintDoc{{Topic: strings.Repeat("x", boardBytes/4)}}}
	for range boardSignals {
		b.add(long)
	}
	if len(b.Signals) != 3 {
		t.Errorf("%d long signals are on the board", len(b.Signals))
	}
	b.add(&signalDoc{Node: "n", Appended: []hintDoc{{Topic: strings.Repeat("x", 2*boardBytes)}}})
	if len(b.Signals) != 1 {
		t.Errorf("beside one beyond the bound there are %d", len(b.Signals)-1)
	}
}

// TestBoardNumbers: a follower hears each signal once, and knows when it has
// missed some.
func TestBoardNumbers(t *testing.T) {
	var got []string
	l := &Log{opts: Options{Logger: slog.New(slog.DiscardHandler)}}
	f := &following{log: l, node: "own", heard: func(s eventlog.Signal, missed bool) {
		got = append(got, fmt.Sprintf("%s %v", s.Moved[0].Group, missed))
	}}
	seen := map[string]seenBoard{}
	var b board
	put := func(node string, groups ...string) {
		for _, g := range groups {
			b.add(&signalDoc{Node: node, Moved: []groupDoc{{Topic: "t", Group: g}}})
		}
	}
	check := func(busy bool, want ...string) {
		t.Helper()
		got = nil
		if f.hearBoards([]board{b}, seen) != busy || !slices.Equal(got, want) {
			t.Errorf("heard %q; want %q", got, want)
		}
	}
	put("n", "a", "b")
	check(true, "a false", "b false")
	check(false)
	put("n", "c")
	check(true, "c false")
	for i := range 2 * boardSignals {
		put("n", fmt.Sprint(i))
	}
	check(true, append([]string{"32 true"}, func() (rest []string) {
		for i := boardSignals + 1; i < 2*boardSignals; i++ {
			rest = append(rest, fmt.Sprint(i, " false"))
		}
		return rest
	}()...)...)
	b = board{}
	put("own", "x")
	check(false)
}
