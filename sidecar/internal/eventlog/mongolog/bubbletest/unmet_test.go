package bubbletest

import (
	"errors"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// TestUnmetConcern: if the replica set does not meet a topic's write concern, that topic's appends
// are refused, by the server's word or after waiting in vain. The store and other topics stay
// available. A refused event is stored once when it is appended again.
func TestUnmetConcern(t *testing.T) {
	for _, c := range []struct {
		name, concern string
		down          bool // a member is
	}{{"more than there are", "w:4", false}, {"more than are up", "w:3", true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := mongomodel.New(mongomodel.Options{})
				defer set.Close()
				concern := c.concern
				l, err := mongolog.Open(mongolog.Options{
					URL: set.URI(), Dialer: set.Client("a").Dialer, Logger: slog.New(slog.DiscardHandler),
					WriteConcern: func(topic string) string {
						if topic == "strict" {
							return concern
						}
						return "majority"
					},
				})
				require.NoError(t, err)
				defer l.Close()
				if c.down {
					set.Kill((set.Primary() + 1) % 3)
				}
				publish := func(topic, id string) eventlog.Outcome {
					if _, err := l.EnsureTopic(t.Context(), topic, 1); err != nil {
						t.Fatal(err)
					}
					return l.Append(t.Context(), topic, 0, []*eventlog.Record{
						{Event: wire.Event{ID: id, TS: 1, Topic: topic, Payload: []byte("1")}}})[0]
				}
				for range 2 { // the second time it is there already
					out := publish("strict", "x")
					var unmet *eventlog.ConcernError
					if !errors.As(out.Err, &unmet) || errors.Is(out.Err, eventlog.ErrUnavailable) {
						t.Fatalf("got %+v", out)
					}
					if unmet.Topic != "strict" || unmet.Concern != c.concern {
						t.Errorf("got %+v", unmet)
					}
				}
				if err := l.Err(); err != nil {
					t.Errorf("the store is taken for away: %v", err)
				}
				if want := map[string]string{"strict": c.concern}; !maps.Equal(l.UnmetConcerns(), want) {
					t.Errorf("got %v, want %v", l.UnmetConcerns(), want)
				}
				if out := publish("other", "x"); out.Err != nil {
					t.Errorf("another topic: %v", out.Err)
				}
				concern = "w:2"
				if out := publish("strict", "x"); out.Err != nil || !out.Duplicate || out.Seq != 1 {
					t.Errorf("with a concern that is met: %+v", out)
				}
				if left := l.UnmetConcerns(); len(left) > 0 {
					t.Errorf("still unmet: %v", left)
				}
			})
		})
	}
}
