package xds

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/policypb"
	"github.com/sluice-bus/sluice/internal/policy"
)

// Whatever happens in whatever order, the cache has every policy, and a
// placeholder for each other name that somebody subscribes to; what is there
// beyond that goes with the next sweep.
func TestTheCacheHasWhatIsWanted(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(t *rapid.T) {
		p := newPolicies()
		versions := map[string]int64{}
		subscribed := map[string]int{}
		next := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				name := rapid.SampledFrom(names).Draw(t, "name")
				if rapid.Bool().Draw(t, "there") {
					next++
					versions[name] = next
				} else {
					delete(versions, name)
				}
				state := &catalog.State{}
				for _, name := range names {
					if v := versions[name]; v > 0 {
						e := policy.Defaults()
						state.Resolved = append(state.Resolved, catalog.Resolved{Name: name, Version: v, Effective: &e})
					}
				}
				before := len(versions)
				if n, err := p.replace(state); err != nil || n > 1 {
					t.Fatalf("%d changes, %v, of %d policies", n, err, before)
				}
			},
			"subscribe": func(t *rapid.T) {
				name := rapid.SampledFrom(names).Draw(t, "name")
				subscribed[name]++
				if err := p.subscribe([]string{name}); err != nil {
					t.Fatal(err)
				}
			},
			"unsubscribe": func(t *rapid.T) {
				name := rapid.SampledFrom(names).Draw(t, "name")
				if subscribed[name] == 0 {
					t.Skip()
				}
				subscribed[name]--
				if err := p.unsubscribe([]string{name}); err != nil {
					t.Fatal(err)
				}
			},
			"sweep": func(t *rapid.T) {
				if err := p.sweep(); err != nil {
					t.Fatal(err)
				}
				for name := range p.topicCache.GetResources() {
					if versions[name] == 0 && subscribed[name] == 0 {
						t.Fatalf("%s is still there", name)
					}
				}
			},
			"": func(t *rapid.T) {
				cached := p.topicCache.GetResources()
				for _, name := range names {
					r, _ := cached[name].(*policypb.TopicPolicy)
					switch {
					case versions[name] > 0 && r.GetVersion() != versions[name]:
						t.Fatalf("%s: version %d, want %d", name, r.GetVersion(), versions[name])
					case versions[name] == 0 && subscribed[name] > 0 && !r.GetAbsent():
						t.Fatalf("%s: no placeholder", name)
					case versions[name] == 0 && r != nil && !r.GetAbsent():
						t.Fatalf("%s: version %d of what is deleted", name, r.GetVersion())
					}
				}
			},
		})
	})
}

func TestTooManyIdlePlaceholdersAreRemovedAtOnce(t *testing.T) {
	p := newPolicies()
	names := make([]string, maxIdle+1)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	for _, some := range [][]string{names[:maxIdle], names[maxIdle:]} {
		if err := p.subscribe(some); err != nil {
			t.Fatal(err)
		}
		if n := p.topicCache.NumResources(); n != len(some) && n != len(names) {
			t.Fatalf("%d placeholders", n)
		}
		if err := p.unsubscribe(some); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.topicCache.NumResources(); n != 0 {
		t.Errorf("%d placeholders are left", n)
	}
}

// The version of a resource is a hash of its content: that of the first release
// is the same today, so that an upgrade does not make everything be sent again.
func TestVersionsDoNotDependOnTheProcess(t *testing.T) {
	hash := func() string {
		p := newPolicies()
		e := policy.Defaults()
		if _, err := p.replace(&catalog.State{Resolved: []catalog.Resolved{{Name: "a", Version: 1, Effective: &e}}}); err != nil {
			t.Fatal(err)
		}
		return p.topics["a"].hash
	}
	if a, b := hash(), hash(); a != b || len(a) != 64 {
		t.Errorf("%s and %s", a, b)
	}
}

func TestARejectionNamesThePolicy(t *testing.T) {
	response := sent{resources: []sentResource{{name: "a", version: 1}, {name: "b", version: 2}, {name: "c", version: 3}}}
	packed := sent{resources: []sentResource{{name: "1", part: &fleet.Part{Versions: map[string]int64{"a": 1, "c": 3}}}, {name: "2", part: &fleet.Part{Versions: map[string]int64{"b": 2}}}}}
	for reason, want := range map[string]string{
		"cannot be": "a", `"c" is bad`: "c", `"c" and "b"`: "c", `a, b`: "a",
	} {
		for _, response := range []sent{response, packed} {
			if got := response.rejection(reason); got.Policy != want || got.Version != int64(want[0]-'a'+1) {
				t.Errorf("%s: got %+v, want %s", reason, got, want)
			}
		}
	}
	if got := (sent{}).rejection("why"); got.Policy != "" || got.Reason != "why" {
		t.Errorf("got %+v", got)
	}
}
