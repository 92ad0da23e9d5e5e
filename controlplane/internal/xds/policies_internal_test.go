package xds

import (
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/policy"
)

// The version of a resource is a hash of its content, the same in every process, so that a restart
// does not make everything be sent again.
func TestVersionsDoNotDependOnTheProcess(t *testing.T) {
	hash := func() string {
		p := newPolicies()
		e := policy.Defaults()
		if _, err := p.replace(&catalog.State{Resolved: []catalog.Resolved{{Name: "a", Version: 1, Effective: &e}}}); err != nil {
			t.Fatal(err)
		}
		return p.packs["policies/"].part.ID
	}
	if a, b := hash(), hash(); a != b || len(a) != 64 {
		t.Errorf("%s and %s", a, b)
	}
}

func TestARejectionNamesThePolicy(t *testing.T) {
	response := sent{resources: []sentResource{{name: "1", part: &fleet.Part{Versions: map[string]int64{"a": 1, "c": 3}}},
		{name: "2", part: &fleet.Part{Versions: map[string]int64{"b": 2}}}}}
	for reason, want := range map[string]string{
		"cannot be": "a", `"c" is bad`: "c", `"c" and "b"`: "c", `a, b`: "a",
	} {
		if got := response.rejection(reason); got.Policy != want || got.Version != int64(want[0]-'a'+1) {
			t.Errorf("%s: got %+v, want %s", reason, got, want)
		}
	}
	if got := (sent{}).rejection("why"); got.Policy != "" || got.Reason != "why" {
		t.Errorf("got %+v", got)
	}
}
