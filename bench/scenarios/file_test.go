package scenarios

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

func TestParse(t *testing.T) {
	all, err := Parse([]byte(`
takeover:
  - {name: ours, rate: 100, keys: 0}
publish:
  - {name: orders, connections: 20, size: 900}
  - {name: by HTTP, transport: http}
`))
	require.NoError(t, err)
	if len(all) != 2 || all[0].Name != "takeover" || all[1].Name != "publish" || len(all[1].Cases) != 2 {
		t.Fatalf("%+v", all)
	}
	if got := all[0].Cases[0]; got != (Case{"ours", Params{Sidecars: 3, Rate: 100}}) {
		t.Errorf("what a case leaves out is not as in the first: %+v", got)
	}
	if got := all[1].Cases[0]; got != (Case{"orders", Params{Connections: 20, Size: 900}}) {
		t.Errorf("%+v", got)
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "a list of cases for each",
		"- publish":                            "a list of cases for each",
		"publish: {name: a}":                   "line 1: publish has to have a list of cases",
		"publish: []":                          "line 1: publish has to have a list of cases",
		"publihs: [{name: a}]":                 `line 1: there is no scenario "publihs" (did you mean "publish"?)`,
		"publish:\n- ours":                     "line 2: publish: a case has a name and parameters",
		"publish:\n- {batch: 3}":               "line 2: publish: a case has no name",
		"soak: [{name: a}]\nsoak: [{name: a}]": "line 2: soak is there twice",
		"publish:\n- {name: a, conections: 3}": `line 2: publish: it does not use conections (did you mean "connections"?)`,
		"roundtrip:\n- {name: a}\n- {name: a, groups: 3}":  "line 3: roundtrip: it does not use groups; known are rate, size,",
		"publish:\n- {name: a, depth: many}":               "cannot unmarshal",
		"publish:\n- {name: a, depth: -1}":                 "line 2: publish: a: depth is -1; it has to be at least 0",
		"fanout:\n- {name: a, groups: 0}":                  "groups is 0; it has to be at least 1",
		"takeover:\n- {name: a, sidecars: 2}":              "sidecars is 2; it has to be at least 3",
		"publish:\n- {name: a, size: 3}":                   "size is 3; the time in the payload needs 35",
		"publish:\n- {name: a, transport: tcp}":            `transport is "tcp"; it has to be ws or http`,
		"publish:\n- {name: a, transport: http, depth: 2}": "use connections",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestScenariosUseWhatTheirCasesSet: a file may have each of a scenario's own cases, and nothing that is no parameter.
func TestScenariosUseWhatTheirCasesSet(t *testing.T) {
	known := append(slices.Collect(maps.Keys(Params{}.numbers())), "transport")
	for _, s := range All() {
		for _, c := range s.Cases {
			require.NoError(t, s.check(c.Params))
			for name, value := range c.numbers() {
				if value != 0 && !slices.Contains(s.Uses, name) {
					t.Errorf("%s: %s has %s, which it does not use", s.Name, c.Name, name)
				}
			}
		}
		for _, name := range s.Uses {
			if !slices.Contains(known, name) {
				t.Errorf("%s uses %s, which is no parameter", s.Name, name)
			}
		}
	}
}
