package health_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/test/require"
)

// states draws one state after another, as a sidecar has them: the log only grows.
func states(t *rapid.T) *rapid.Generator[health.State] {
	return rapid.Custom(func(t *rapid.T) health.State {
		groups := rapid.MapOf(rapid.Custom(func(t *rapid.T) health.Group {
			name := rapid.SampledFrom([]string{"a", "b", "c"})
			return health.Group{Topic: name.Draw(t, "topic"), Group: name.Draw(t, "group")}
		}), rapid.Custom(func(t *rapid.T) health.GroupState {
			return health.GroupState{Lag: rapid.Int64Range(0, 3).Draw(t, "lag"), Members: rapid.IntRange(0, 2).Draw(t, "members")}
		}))
		return health.State{
			Process: health.Process{StoreState: rapid.SampledFrom([]string{"ok", "away"}).Draw(t, "store")},
			Groups:  groups.Draw(t, "groups"),
			Sources: rapid.MapOf(rapid.Just(health.SourceName{Kind: "outbox", Name: "d.c"}), rapid.Custom(func(t *rapid.T) health.Source {
				return health.Source{State: rapid.SampledFrom([]string{"ok", "no"}).Draw(t, "state")}
			})).Draw(t, "sources"),
		}
	})
}

// The control plane has what the sidecar had, whatever changed, through the JSON of the reports.
func TestReportsMakeTheStateAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent, have, lines := &health.State{}, &health.State{}, 0
		for range rapid.IntRange(1, 20).Draw(t, "reports") {
			next := states(t).Draw(t, "state")
			fresh := rapid.IntRange(0, 60).Draw(t, "new lines")
			next.Log = slices.Clone(sent.Log)
			for range fresh {
				lines++
				next.Log = append(next.Log, fmt.Sprint("line ", lines))
			}
			next.Log = next.Log[max(len(next.Log)-health.MaxLogLines, 0):]
			text, err := json.Marshal(sent.Diff(&next, fresh))
			if err != nil {
				t.Fatal(err)
			}
			r, err := health.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			before := *have
			was := maps.Clone(have.Groups)
			have = have.Apply(r)
			if !maps.Equal(was, before.Groups) {
				t.Fatal("a report has changed the state before it")
			}
			sent = &next
			if !alike(have, sent) {
				t.Fatalf("the sidecar has\n%+v, the control plane\n%+v", sent, have)
			}
		}
	})
}

func alike(a, b *health.State) bool {
	return a.Process == b.Process && maps.Equal(a.Groups, b.Groups) && maps.Equal(a.DeadLetters, b.DeadLetters) &&
		maps.Equal(a.Sources, b.Sources) && slices.Equal(a.Log, b.Log)
}

func TestAReportWithoutChangesIsSmall(t *testing.T) {
	s := &health.State{Process: health.Process{StoreState: "ok"}, Groups: map[health.Group]health.GroupState{{Topic: "a"}: {Lag: 1}}}
	text, err := json.Marshal(s.Diff(s, 0))
	require.NoError(t, err)
	if string(text) != `{"at":0}` {
		t.Errorf("got %s", text)
	}
}

func TestAStateHasItsBounds(t *testing.T) {
	big := &health.State{Groups: map[health.Group]health.GroupState{}, DeadLetters: map[health.Group]health.DeadLetters{},
		Sources: map[health.SourceName]health.Source{}}
	for i := range 1000 {
		name := fmt.Sprint(i)
		big.Groups[health.Group{Topic: name}] = health.GroupState{Lag: 1}
		big.DeadLetters[health.Group{Topic: name}] = health.DeadLetters{Count: 1}
		big.Sources[health.SourceName{Name: name}] = health.Source{State: "ok"}
		big.Log = append(big.Log, name)
	}
	var empty health.State
	r := empty.Diff(big, len(big.Log))
	got := empty.Apply(&r)
	if sizes := []int{len(got.Groups), len(got.DeadLetters), len(got.Sources), len(got.Log)}; !reflect.DeepEqual(sizes,
		[]int{health.MaxGroups, health.MaxDeadLetters, health.MaxSources, health.MaxLogLines}) || got.Log[99] != "999" {
		t.Errorf("kept %v", sizes)
	}
}

func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("x", health.MaxTextBytes+1)
	for text, want := range map[string]string{
		"{":                        "cannot be read",
		`{"log":["` + long + `"]}`: "a text of 513 bytes, at most 512",
		`{"process":{"store_error":"` + long + `"}}`:            "a text of 513 bytes",
		`{"groups":{"set":[{"key":{"topic":"` + long + `"}}]}}`: "a text of 513 bytes",
	} {
		if _, err := health.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
	if got := health.Cut(strings.Repeat("ä", 300)); len(got) > health.MaxTextBytes || !utf8.ValidString(got) || !strings.HasSuffix(got, "ä…") {
		t.Errorf("cut to %d bytes: %q", len(got), got)
	}
}
