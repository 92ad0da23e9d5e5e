package mongolog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// heardSignal is one call of a follower.
type heardSignal struct {
	eventlog.Signal
	missed []string
	at     time.Time
}

// follow follows topics, by default all that these tests have, until the test ends. It returns the
// heard signals, from the one on after the follower has said of each topic that it may have missed
// some.
func follow(t *testing.T, l *Log, topics ...string) <-chan heardSignal {
	t.Helper()
	if topics == nil {
		topics = []string{"orders", "own", "end"}
	}
	heard := make(chan heardSignal, 10_000)
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		err := l.Follow(ctx, always(topics...), func(s eventlog.Signal, missed []string) { heard <- heardSignal{s, missed, time.Now()} })
		if err != nil {
			t.Errorf("Follow: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		following.Wait()
	})
	for missed := []string(nil); len(missed) < len(topics); {
		s := next(t, heard)
		if missed = append(missed, s.missed...); s.missed == nil {
			t.Errorf("a signal before all were said to be missed: %+v", s)
		}
	}
	return heard
}

// always are topics that stay the same.
func always(topics ...string) eventlog.Topics {
	return func() ([]string, <-chan struct{}) { return slices.Clone(topics), nil }
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

// A sidecar that leaves sends a last signal, and closes its log at once.
func TestTheLastSignalIsSent(t *testing.T) {
	open := sharedStore(t)
	stays, leaves := open(), open()
	at := follow(t, stays)
	leaves.Send(appended("orders", 0, 1))
	for next(t, at).Appended == nil {
	}
	leaves.Send(eventlog.Signal{Nodes: []string{"orders"}})
	require.NoError(t, leaves.Close())
	for next(t, at).Nodes == nil {
	}
}

func TestSignals(t *testing.T) {
	open := sharedStore(t)
	one, two, three := open(), open(), open()
	one.Send(appended("before", 0, 1)) // nobody follows yet
	at1, at2 := follow(t, one), follow(t, two)

	moved := eventlog.Signal{Moved: []eventlog.GroupName{{Topic: "orders", Group: "a.$b"}}}
	for _, s := range []eventlog.Signal{appended("orders", 3, 1<<62), moved, {Nodes: []string{"orders"}}} {
		three.Send(s)
		for _, at := range []<-chan heardSignal{at1, at2} {
			got := next(t, at)
			for len(got.Appended) == 1 && got.Appended[0].Topic == "before" {
				got = next(t, at)
			}
			if fmt.Sprint(got.Signal) != fmt.Sprint(s) || got.missed != nil {
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
}

// TestSignalsWhileBusy checks that no signal gets lost on the way, merged or not.
func TestSignalsWhileBusy(t *testing.T) {
	open := sharedStore(t)
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
		if s.missed != nil {
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
}

// TestSignalsAcrossRestart stops the server. Signals that are sent meanwhile arrive, or followers
// say that they may have missed some.
func TestSignalsAcrossRestart(t *testing.T) {
	t.Parallel()
	s := mongotest.Start(t)
	if !s.CanStop() {
		t.Log("left out: this server cannot be stopped by a test")
		return
	}
	o := Options{URL: s.URI(s.NewDatabase(t)), Timeout: 2 * time.Second}
	from, to := openRunning(t, o), openRunning(t, o)
	heard := follow(t, to)
	from.Send(appended("orders", 0, 1))
	next(t, heard)
	s.Kill()
	begun := time.Now()
	for n := range uint64(1000) {
		from.Send(appended("orders", 0, n+2))
	}
	from.Send(eventlog.Signal{Nodes: []string{"orders"}})
	if d := time.Since(begun); d >= o.Timeout {
		t.Errorf("sending while the server is away took %v", d)
	}
	s.Restart()
	var head uint64
	var nodes bool
	for head < 1001 || !nodes {
		s := next(t, heard)
		nodes = nodes || s.Nodes != nil
		for _, h := range s.Appended {
			head = max(head, h.Head)
		}
		// A signal that came before the follower was back is lost, and has to be asked for;
		// here it is simply sent again.
		if s.missed != nil {
			from.Send(appended("orders", 0, 1001))
			from.Send(eventlog.Signal{Nodes: []string{"orders"}})
		}
	}
}

// TestCloseEndsFollowing: Close does not hang, also with calls under way.
func TestCloseEndsFollowing(t *testing.T) {
	l := sharedStore(t)()
	opened := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- l.Follow(context.Background(), always("orders"), func(eventlog.Signal, []string) { close(opened) })
	}()
	<-opened
	l.Send(eventlog.Signal{Nodes: []string{"orders"}})
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-ended; err != core.ErrClosed {
		t.Errorf("Follow: %v; want that the log is closed", err)
	}
	l.Send(eventlog.Signal{Nodes: []string{"orders"}})
}

// TestSignalLatency measures the time from Send to heard, and the cost of following while nothing
// is sent.
func TestSignalLatency(t *testing.T) {
	t.Parallel()
	s := mongotest.Shared(t)
	var commands counter
	o := Options{URL: s.URI(s.NewDatabase(t))}
	from := openRunning(t, o)
	o.Monitor = &event.CommandMonitor{Started: commands.count}
	to := openRunning(t, o)
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
	if most := 2.0; idle > most {
		t.Errorf("an idle follower sends %.1f commands a second; want at most %.0f", idle, most)
	}
}

func within(heard <-chan heardSignal, d time.Duration) (heardSignal, bool) {
	select {
	case s := <-heard:
		return s, true
	case <-time.After(d):
		return heardSignal{}, false
	}
}

// counter counts commands, without the driver's own.
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

// All followers get a hint without a topic.
func TestASignalAboutAllTopics(t *testing.T) {
	open := sharedStore(t)
	from, one, two := open(), follow(t, open(), "a", "b", "c"), follow(t, open(), "d")
	from.Send(appended("", 0, 0))
	for missed := []string(nil); len(missed) < 3; {
		missed = append(missed, next(t, one).missed...)
	}
	if s := next(t, two); !slices.Equal(s.missed, []string{"d"}) {
		t.Errorf("heard %+v", s)
	}
}
