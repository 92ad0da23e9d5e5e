package source

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestVerdictOf(t *testing.T) {
	for code, want := range map[wire.Code]Verdict{
		wire.SchemaViolation: Final, wire.Conflict: Final, wire.PayloadTooLarge: Final, wire.BadRequest: Final,
		wire.RateLimited: Passing, wire.StoreUnavailable: Passing, wire.TopicPaused: Passing,
		wire.NotFound: Passing, wire.InUse: Passing, wire.Forbidden: Passing,
		wire.Internal: Unclear, "unheard_of": Unclear,
	} {
		if got := VerdictOf(code); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
}

func TestWait(t *testing.T) {
	for said, want := range map[time.Duration]time.Duration{0: waitUnsaid, time.Millisecond: waitMin, time.Minute: time.Minute} {
		if got := Wait(&wire.Error{RetryAfter: said}); got != want {
			t.Errorf("the refusal says %v: %v, want %v", said, got, want)
		}
	}
}

// TestNextCall: events are words of a key and digits of a size, and a capital letter is not wanted.
func TestNextCall(t *testing.T) {
	for _, c := range []struct {
		events, call, rest string
		n, bytes           int
	}{
		{"a1 b1 c1", "a1 b1 c1", "", 9, 9},
		{"a1 b1 c1", "a1 b1", "c1", 2, 9},
		{"a1 a2 b1", "a1 b1", "a2", 9, 9},
		{"a9 b1", "a9", "b1", 9, 5},
		{"a3 b3 b1 c1", "a3 c1", "b3 b1", 9, 5},
		{"A1 b1 C1", "b1", "", 9, 9},
		{"A1", "", "", 9, 9},
	} {
		call, rest := NextCall(strings.Fields(c.events), c.n, c.bytes, func(e string) (string, int, bool) {
			return e[:1], int(e[1] - '0'), e[0] >= 'a'
		})
		if !slices.Equal(call, strings.Fields(c.call)) || !slices.Equal(rest, strings.Fields(c.rest)) {
			t.Errorf("%s, at most %d events and %d bytes: %v and %v, want %s and %s", c.events, c.n, c.bytes, call, rest, c.call, c.rest)
		}
	}
}

// answers publishes as it says.
type answers func(done func([]wire.ResultItem)) *wire.Error

func (a answers) Publish(_ context.Context, _ []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error {
	return a(done)
}

func (answers) MaxEvents(topic string) int { return len(topic) }

func TestPublish(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		name   string
		p      answers
		giveUp context.Context
		want   wire.Code
	}{
		{"it answers", func(done func([]wire.ResultItem)) *wire.Error { done(make([]wire.ResultItem, 2)); return nil }, t.Context(), ""},
		{"it answers for too few", func(done func([]wire.ResultItem)) *wire.Error { done(nil); return nil }, t.Context(), wire.Internal},
		{"it refuses", func(func([]wire.ResultItem)) *wire.Error { return wire.Errorf(wire.RateLimited, "no") }, t.Context(), wire.RateLimited},
		{"it never answers", func(func([]wire.ResultItem)) *wire.Error { return nil }, ended, wire.StoreUnavailable},
	} {
		results, err := Publish(t.Context(), c.giveUp, c.p, make([]wire.PublishItem, 2))
		if (err == nil) != (c.want == "") || err != nil && !errors.Is(err, &wire.Error{Code: c.want}) || err == nil && len(results) != 2 {
			t.Errorf("%s: %v, %v", c.name, results, err)
		}
	}
}

func TestMaxEvents(t *testing.T) {
	limits := wire.Limits{BatchEvents: 3}
	for topic, want := range map[string]int{"": 3, "t": 1, "topic": 3} {
		if got := MaxEvents(answers(nil), topic, limits); got != want {
			t.Errorf("%q: %d, want %d", topic, got, want)
		}
	}
}
