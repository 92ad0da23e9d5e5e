package daprapp

import (
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestDeadLettersNeverComeBack: of any subscriptions those are served of which no event comes to a topic again by dying, and each other
// one would have brought one back.
func TestDeadLettersNeverComeBack(t *testing.T) {
	a := &App{cfg: Config{Address: new(url.URL), Logger: slog.New(slog.DiscardHandler)}}
	rapid.Check(t, func(t *rapid.T) {
		topic := rapid.SampledFrom([]string{"a", "a.dlq", "b", "c", "d", "e"})
		letters := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"})
		var list []Described
		for i := range rapid.IntRange(1, 8).Draw(t, "subscriptions") {
			d := Described{PubsubName: fmt.Sprint("p", i), Topic: topic.Draw(t, "topic"), DeadLetterTopic: letters.Draw(t, "letters"), Route: "/r"}
			if d.Topic != d.DeadLetterTopic { // which is refused for itself
				list = append(list, d)
			}
		}
		served := a.usable(list)
		for _, d := range list {
			ways := map[string][]string{}
			for i := range served {
				ways[served[i].Topic] = append(ways[served[i].Topic], served[i].letters())
			}
			one := Subscription{Topic: d.Topic, DeadLetterTopic: d.DeadLetterTopic}
			is := slices.ContainsFunc(served, func(s Subscription) bool { return s.PubsubName == d.PubsubName })
			// The ways of all topics are followed as often as there are topics, so all that can be reached is.
			reached := []string{one.letters()}
			for range 12 {
				for _, at := range slices.Clone(reached) {
					for _, next := range ways[at] {
						if !slices.Contains(reached, next) {
							reached = append(reached, next)
						}
					}
				}
			}
			if back := slices.Contains(reached, d.Topic); back == is {
				t.Fatalf("%s, with dead letters in %s: served %v; by %v", d.Topic, one.letters(), is, ways)
			}
		}
	})
}
