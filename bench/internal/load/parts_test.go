package load

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

func TestPayloadCarriesItsTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(0, 2000).Draw(t, "size")
		payload := newPayload(size)
		for range 2 {
			t0 := rapid.Int64Range(1e18, 9e18).Draw(t, "t0")
			stamp(payload, t0)
			if got, ok := stamped(payload); !ok || got != t0 {
				t.Fatalf("stamped %d, got %d, %v", t0, got, ok)
			}
			if len(payload) != max(size, MinSize) || !json.Valid(payload) {
				t.Fatalf("%d bytes: %s", len(payload), payload)
			}
		}
	})
	for _, other := range []string{``, `{}`, `{"t0":"x"}`, `{"t0":`, `17`} {
		if _, ok := stamped([]byte(other)); ok {
			t.Errorf("%q is taken for one of the bench's", other)
		}
	}
}

func TestSeenTellsDuplicates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type place struct {
			partition int
			seq       uint64
		}
		places := rapid.SliceOf(rapid.Custom(func(t *rapid.T) place {
			return place{rapid.IntRange(0, 3).Draw(t, "partition"), rapid.Uint64Range(1, 500).Draw(t, "seq")}
		})).Draw(t, "places")
		s, model := newSeen(3), map[place]bool{}
		for _, p := range places {
			if first := s.add(p.partition, p.seq); first == model[p] {
				t.Fatalf("%+v: first is %v", p, first)
			}
			model[p] = true
		}
		if unique, again := s.count(); unique != len(model) || again != len(places)-len(model) {
			t.Fatalf("%d unique, %d again; want %d of %d", unique, again, len(model), len(places))
		}
		select {
		case <-s.complete:
			if len(model) < 3 {
				t.Fatal("complete too early")
			}
		default:
			if len(model) >= 3 {
				t.Fatal("not complete")
			}
		}
	})
}

func TestScheduleDoesNotDrift(t *testing.T) {
	s := newSchedule(1000, 3, 10) // 10 events in a send, 3 a second
	if !s.open() || s.at(0) != 1000 {
		t.Errorf("starts at %d", s.at(0))
	}
	// 3 million sends are 30 million events: 10 million seconds.
	if late := s.at(3_000_000) - 1000 - int64(10_000_000*time.Second); late < -1000 || late > 1000 {
		t.Errorf("%d ns late at the end", late)
	}
	if newSchedule(0, 0, 1).open() {
		t.Error("a rate of 0 has a schedule")
	}
}

func TestWaitEndsWithStop(t *testing.T) {
	c := newClock()
	if !c.wait(c.now()-1, nil, preciseSleep) {
		t.Error("a time that has passed is not waited for")
	}
	stop := make(chan struct{})
	close(stop)
	if c.wait(c.now()+int64(time.Hour), stop, preciseSleep) {
		t.Error("waited in spite of stop")
	}
}

// answering is a carrier that accepts all at once.
type answering struct{}

func (answering) Send(_ []wire.Event, s *Slot) error { s.Answered(nil); return nil }
func (answering) Flush() error                       { return nil }
func (answering) Close()                             {}

// TestALoadWhoseTimeIsOverAtItsStartSendsOne: on a busy machine that is so for one of a fraction of a second.
func TestALoadWhoseTimeIsOverAtItsStartSendsOne(t *testing.T) {
	publisher, err := NewPublisher(t.Context(), Publishing{
		Topic: "t", Size: MinSize, Connections: 2, Depth: 1, Batch: 1, For: 1,
		Open: func(context.Context, Publishing) (Carrier, error) { return answering{}, nil },
	})
	require.NoError(t, err)
	tally, _, err := publisher.Run(t.Context())
	if err != nil || tally.Done != 1 {
		t.Errorf("%d events, %v", tally.Done, err)
	}
}
