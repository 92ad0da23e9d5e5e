package core

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/address"
)

// TestSilentServers: an operation without an answer names the servers that give none.
func TestSilentServers(t *testing.T) {
	for want, kinds := range map[string][]string{
		"": {"RSPrimary", "Unknown"},
		" (the servers of --store have no primary)":                             {"RSSecondary", "RSSecondary"},
		" (of the servers of --store there is no answer from a:27017, b:27017)": {"Unknown", "Unknown"},
		" (of the servers of --store there is no answer from b:27017)":          {"RSSecondary", "Unknown"},
	} {
		var known topology
		var d event.TopologyDescription
		for i, kind := range kinds {
			d.Servers = append(d.Servers, event.ServerDescription{Kind: kind, Addr: address.Address("ab"[i:i+1] + ":27017")})
		}
		known.changed(&event.TopologyDescriptionChangedEvent{NewDescription: d})
		if got := known.silent(); got != want {
			t.Errorf("%v: %q, want %q", kinds, got, want)
		}
	}
}
