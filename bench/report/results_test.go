package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/latency"
	"github.com/sluice-bus/sluice/test/require"
)

// hostile is a name that would be a script where it is not escaped.
const hostile = `<script>alert("1")</script>`

// measured are results with a row of each kind, whose rates are multiplied.
func measured(factor float64) *Results {
	round := func(events int, ms int) *Round {
		h := latency.New()
		h.RecordN(time.Duration(ms)*time.Millisecond, events)
		return &Round{
			Events: events, Published: true, Took: time.Second, Measures: "publish to OK", Latency: h, CPU: time.Second,
			Series: []int64{1, 2, 3, 4, 5, 6}, Memory: 1 << 20,
			Figures: map[string]float64{"refused": float64(ms)},
			Points:  []Point{{10, 1, 2}, {100, 1.5, 2}}, PointsOf: [3]string{"stored", "ns", "µs"},
		}
	}
	r := &Results{Program: "sluice-bench", Version: "v1", Rounds: 3}
	for _, name := range []string{"one by one", hostile} {
		row := &Row{Scenario: "publish", Case: name, System: "sluice"}
		row.Fill([]*Round{round(int(1000*factor), 2), round(int(900*factor), 4), round(int(1100*factor), 3)})
		r.Rows = append(r.Rows, row)
	}
	r.Rows = append(r.Rows, &Row{Scenario: "rivals", Case: "eight", System: "sluice", Skipped: "its sidecars share a store"})
	return r
}

func TestRowIsTheMedianOfItsRounds(t *testing.T) {
	row := measured(1).Rows[0]
	if row.MPS != 1000 || row.Spread != [2]float64{900, 1100} || *row.Published != 3000 || row.Consumed != nil || row.MS != 3000 {
		t.Errorf("%+v", row)
	}
	if row.N != 3000 || row.P99Spread[0] >= row.P99Spread[1] {
		t.Errorf("latencies %+v, %v", row.Summary, row.P99Spread)
	}
	if row.EventsPerCPUSecond != 1000 || row.MemoryMiB != 1 || row.Figures["refused"] != 3 {
		t.Errorf("costs %+v", row)
	}
}

func TestResultsAreReadAsTheyWereWritten(t *testing.T) {
	name := filepath.Join(t.TempDir(), "r.json")
	var first, second bytes.Buffer
	require.NoError(t, measured(1).JSON(&first))
	require.NoError(t, os.WriteFile(name, first.Bytes(), 0o600))
	r, err := Read(name)
	require.NoError(t, err)
	require.NoError(t, r.JSON(&second))
	if first.String() != second.String() {
		t.Errorf("written\n%s\nread\n%s", &first, &second)
	}
	require.NoError(t, os.WriteFile(name, []byte(`{"command":"publish"}`), 0o600))
	if _, err := Read(name); err == nil || !strings.Contains(err.Error(), "no result of sluice-bench run") {
		t.Errorf("something else is read: %v", err)
	}
}

func TestTableOfResults(t *testing.T) {
	var out bytes.Buffer
	results := measured(1)
	results.Rows[0].Unknown = "why"
	results.Rows[0].Figures = map[string]float64{"ms until all is there": 10_012.4, "commands of an event": 1.234567}
	require.NoError(t, results.Table(&out))
	for _, want := range []string{
		"publish: one by one", "1,000", "900 to 1,100", "rivals: eight: its sidecars share a store", "limited by waiting",
		"ms until all is there 10,012", "commands of an event 1.235", "not known: why",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}

func TestPageNeedsNoNetworkAndEscapesNames(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, measured(1).HTML(&out))
	page := out.String()
	for _, never := range []string{"<script", "http://", "https://", "src=", "url("} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q", never)
		}
	}
	pictures := strings.Split(page, "<svg")[1:]
	if len(pictures) != 7 { // rates, latencies and throughput of one scenario, and two of growth for each row
		t.Errorf("%d pictures", len(pictures))
	}
	for _, picture := range pictures {
		svg, _, _ := strings.Cut("<svg"+picture, "</svg>")
		for d := xml.NewDecoder(strings.NewReader(svg + "</svg>")); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in %s", err, svg)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	before := measured(1)
	for name, test := range map[string]struct {
		factor        float64
		beyond, worse bool
	}{
		"within the spread": {0.95, false, false},
		"better":            {1.5, true, false},
		"worse":             {0.5, true, true},
	} {
		changes, only := Compare(before, measured(test.factor), 0.1)
		if len(only) != 0 || len(changes) != 6 {
			t.Fatalf("%s: %+v, %v", name, changes, only)
		}
		for _, c := range changes {
			if c.Figure != "events/s" {
				continue
			}
			if c.Beyond != test.beyond || c.Worse != test.worse {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
	after := measured(1)
	after.Rows = after.Rows[1:]
	if _, only := Compare(before, after, 0.1); len(only) != 1 || only[0] != "publish: one by one (before)" {
		t.Errorf("only in one: %v", only)
	}
}
