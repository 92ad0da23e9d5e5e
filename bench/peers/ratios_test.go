package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/bench/report"
)

// example is a case of two systems, of which one is not fsynced, in three rounds, and a peer that is not there.
func example() *report.Results {
	row := func(system, durability string, rates ...int) *report.Row {
		r := &report.Row{Scenario: "publish", Case: "one by one", System: system, Durability: durability}
		var rounds []*report.Round
		for _, n := range rates {
			rounds = append(rounds, &report.Round{Events: n, Published: true, Took: time.Second})
		}
		r.Fill(rounds)
		return r
	}
	return &report.Results{
		Systems: map[string]string{"Sluice": "v1", "JetStream": "2.15"}, Flags: map[string]any{"for": "1s", "size": 256}, Rounds: 3,
		Rows: []*report.Row{
			row("Sluice", "fsynced", 100, 300, 200), row("JetStream", "not fsynced", 100, 100, 400),
			{Scenario: "publish", Case: "one by one", System: "MongoDB driver", Skipped: "MONGODB_URI is not set"},
		},
	}
}

func TestRatiosAreOfTheSameRounds(t *testing.T) {
	rows := example().Rows
	got, ok := ratioOf(rows[0], rows[1], rate)
	if want := (ratio{median: 1, low: 0.5, high: 3}); !ok || got != want {
		t.Errorf("%+v, %v, want %+v", got, ok, want)
	}
	if _, ok := ratioOf(rows[0], rows[1], p99); ok {
		t.Error("there is a ratio of latencies that nobody measured")
	}
}

func TestThePageHasTheLastRunBetweenItsMarks(t *testing.T) {
	name := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(name, []byte("before\n"+tableBegin+"old\n"+tableEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, too
		if err := replaceTable(name, example()); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, want := range []string{
		"before\n" + tableBegin, tableEnd + "after\n", "| JetStream 2.15 | not fsynced | 100 (1.00, 0.50–3.00) |", "MongoDB driver: MONGODB_URI is not set",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "old\n") || strings.Count(text, "| Sluice v1 |") != 1 {
		t.Errorf("an older run is left:\n%s", text)
	}
	if err := replaceTable(name+".none", example()); err == nil {
		t.Error("a page that is not there has the table")
	}
}
