package deadletter_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/test/require"
)

// An event that dies again has two dead letters until the first is removed. The later one says what became of it.
func TestOfTheLastDeath(t *testing.T) {
	rec := &eventlog.Record{Event: wire.Event{Topic: "t", ID: "x", Seq: 7, Payload: []byte("1")}}
	first := deadletter.FirstID(rec, "g", 0)
	second := eventlog.NextLetter(first)
	third := eventlog.NextLetter(second)
	for _, letters := range [][]string{{}, {first}, {first, second}, {second}, {second, third}, {third}} {
		there := map[string]*eventlog.Record{}
		for _, id := range letters {
			there[id] = &eventlog.Record{Event: wire.Event{Topic: "other", ID: id}}
		}
		got, err := deadletter.Of(t.Context(), rec, []string{"t.dlq", "other"}, "g", 0,
			func(_ context.Context, topic, id string) (*eventlog.Record, error) {
				if found := there[id]; found != nil && topic == found.Topic {
					return found, nil
				}
				return nil, eventlog.NotFound("event %q of topic %q", id, topic)
			})
		require.NoError(t, err)
		switch {
		case len(letters) == 0 && got != nil:
			t.Errorf("%+v, and there is none", got)
		case len(letters) > 0 && (got == nil || got.ID != letters[len(letters)-1]):
			t.Errorf("%+v; want the last of %q", got, letters)
		}
	}
	if id := deadletter.Make(rec, eventlog.Death{Group: "g"}, 0, time.Time{}).ID; id != first {
		t.Errorf("the first is %s, and %s is made", first, id)
	}
}
