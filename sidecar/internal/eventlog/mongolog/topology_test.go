package mongolog

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
)

func TestTheGenerationRisesWithTheServerThatTakesWrites(t *testing.T) {
	set := func(servers ...event.ServerDescription) event.TopologyDescription {
		return event.TopologyDescription{Servers: servers}
	}
	a := event.ServerDescription{Addr: "a:1", Kind: "RSPrimary", ElectionID: bson.ObjectID{1}}
	again := event.ServerDescription{Addr: "a:1", Kind: "RSPrimary", ElectionID: bson.ObjectID{2}}
	b := event.ServerDescription{Addr: "b:1", Kind: "RSPrimary", ElectionID: bson.ObjectID{3}}
	second := event.ServerDescription{Addr: "c:1", Kind: "RSSecondary"}
	gone := event.ServerDescription{Addr: "a:1", Kind: "Unknown"}
	alone := event.ServerDescription{Addr: "a:1", Kind: "Standalone"}
	cases := []struct {
		name     string
		from, to event.TopologyDescription
		rises    bool
	}{
		{"a secondary comes", set(a), set(a, second), false},
		{"the order differs", set(second, a), set(a, second), false},
		{"another primary", set(a, second), set(b, second), true},
		{"the same one is elected again", set(a), set(again), true},
		{"the primary is not seen", set(a, second), set(gone, second), true},
		{"a secondary is not seen", set(a, second), set(a), false},
		{"one server is not seen", set(alone), set(gone), true},
		{"one server comes back", set(gone), set(alone), true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var watch topology
			watch.monitor().TopologyDescriptionChanged(&event.TopologyDescriptionChangedEvent{PreviousDescription: c.from, NewDescription: c.to})
			if got := watch.generation.Load() == 1; got != c.rises {
				t.Errorf("rises: %v; want %v", got, c.rises)
			}
		})
	}
}
