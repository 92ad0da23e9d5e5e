package group

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/follower"
)

// listener is a follower and its end of the connection.
type listener struct {
	*fakeSink
	*follower.Follower
}

func (w *world) follow(opts ...option) *listener {
	w.t.Helper()
	l := &listener{fakeSink: &fakeSink{}}
	s := Subscription{Topic: topic, Sink: l.fakeSink, Pacer: &fakePacer{}}
	for _, o := range opts {
		o(&s)
	}
	f, err := w.m.Follow(context.Background(), s)
	if err != nil {
		w.t.Fatalf("follow: %v", err)
	}
	l.Follower = f
	f.Start()
	synctest.Wait()
	return l
}

// ids returns the events since the last call.
func (l *listener) ids() string { return strings.ReplaceAll(l.take(), "/0", "") }

func TestFollow(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		all, latest, some := w.follow(earliest), w.follow(), w.follow(earliest, onlyKey("k"))
		defer all.Close()
		defer some.Close()
		w.publish("c:k", "d")
		for l, want := range map[*listener]string{all: "a b c d", latest: "c d", some: "c"} {
			if got := l.ids(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		latest.Close()
		latest.Close()
		w.publish("e")
		if got := latest.ids(); got != "" {
			t.Errorf("%q came after the close", got)
		}
		if names, _ := w.m.Groups(t.Context(), topic); len(names) != 0 {
			t.Errorf("groups %v", names)
		}
	})
}

func TestFollowEveryPartitionInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		w.bounds.FetchEvents = 3
		w.start()
		w.publishN(100, "")
		l := w.follow(earliest)
		w.publishN(100, "")
		l.Close()
		next := make(map[int]uint64)
		for _, d := range l.got {
			next[d.Record.Partition]++
			if d.Record.Seq != next[d.Record.Partition] {
				t.Fatalf("seq %d of partition %d came out of order", d.Record.Seq, d.Record.Partition)
			}
		}
		if len(l.got) != 200 {
			t.Errorf("%d came", len(l.got))
		}
		w.stop()
	})
}

func TestFollowerFlow(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b", "c", "d")
		l := w.follow(earliest, paced(time.Second))
		defer l.Close()
		wants := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := l.ids(); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		wants("a")
		advance(time.Second)
		wants("b")
		l.Pause()
		advance(time.Minute)
		wants("")
		l.Resume()
		wants("c")
		l.setFull(true)
		advance(time.Minute)
		wants("")
		l.setFull(false)
		l.Wake()
		wants("d")
	})
}

func TestFollowerOfABrokenLog(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b", "c")
		w.log.readErr = errStore
		l := w.follow(earliest)
		defer l.Close()
		advance(10 * retryAfterFailure)
		w.log.locked(func() {
			if w.log.reads < 9 || w.log.reads > 12 {
				t.Errorf("%d reads in 10 retries", w.log.reads)
			}
			w.log.readErr = nil
			w.log.firsts[topic] = 3 // retention has gone over the rest
		})
		advance(retryAfterFailure)
		if got := l.ids(); got != "c" {
			t.Errorf("got %q", got)
		}
		w.log.tails.Appended(topic, 0, []*eventlog.Record{{Event: wire.Event{Seq: 5}}})
		synctest.Wait() // would not return
		w.publish("d", "e")
		advance(retryAfterFailure)
		if got := l.ids(); got != "d e" {
			t.Errorf("got %q", got)
		}
		l.Pause()
		w.publish("f")
		w.log.locked(func() { w.log.firsts[topic] = 7 })
		w.log.tails.Appended(topic, 0, []*eventlog.Record{{Event: wire.Event{Seq: 90}}})
		l.Resume()
		w.publish("g")
		advance(retryAfterFailure)
		if got := l.ids(); got != "g" {
			t.Errorf("got %q", got)
		}
	})
}
