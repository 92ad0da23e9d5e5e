package health_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// Whatever is refused is reported once, with its code: what is beyond the bound for the topic Other.
func TestEachRefusedEventIsReportedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was, want, got := map[health.Refusal]int64{}, map[wire.Code]int64{}, map[wire.Code]int64{}
		for range rapid.IntRange(1, 4).Draw(t, "reports") {
			is := maps.Clone(was)
			most := rapid.SampledFrom([]int{3, 600}).Draw(t, "topics")
			for range rapid.IntRange(0, most).Draw(t, "refusals") {
				code := rapid.SampledFrom(wire.Codes()).Draw(t, "code").Code
				r, n := health.Refusal{Topic: fmt.Sprint(rapid.IntRange(0, most).Draw(t, "topic")), Code: code}, rapid.Int64Range(1, 9).Draw(t, "n")
				is[r] += n
				want[code] += n
			}
			if len(is) > 0 && rapid.Bool().Draw(t, "a topic is deleted") {
				r := rapid.SampledFrom(slices.Collect(maps.Keys(is))).Draw(t, "topic")
				want[r.Code] -= is[r] - was[r]
				delete(is, r)
			}
			list := health.RefusedSince(was, is)
			if len(list) > health.MaxRefused {
				t.Fatalf("a report has %d", len(list))
			}
			text, err := json.Marshal(health.Report{Refused: list})
			require.NoError(t, err)
			r, err := health.Parse(text)
			require.NoError(t, err)
			for _, one := range r.Refused {
				got[one.Code] += one.Events
			}
			was = is
		}
		for code, n := range want {
			if got[code] != n {
				t.Fatalf("%s: %d were reported of %d", code, got[code], n)
			}
		}
	})
}

func TestRefusalsAreChecked(t *testing.T) {
	row := `{"topic":"a","code":"rate_limited","events":1},`
	for text, want := range map[string]string{
		strings.TrimSuffix(strings.Repeat(row, health.MaxRefused+1), ","): "257 refusals, at most 256",
		`{"topic":"a","code":"rate_limited","events":0}`:                  "0 refused events",
		`{"topic":"a","code":"rate_limited","events":1000000000000000}`:   "1000000000000000 refused events",
		`{"topic":"` + strings.Repeat("x", 600) + `","events":1}`:         "a text of 600 bytes",
	} {
		if _, err := health.Parse([]byte(`{"refused":[` + text + `]}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
	r, err := health.Parse([]byte(`{"refused":[{"topic":"a","code":"of_another_version","events":1}]}`))
	if err != nil || r.Refused[0].Code != health.Other {
		t.Errorf("a code that is not known: %+v, %v", r, err)
	}
}
