package report_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/bench/internal/latency"
	"github.com/sluice-bus/sluice/bench/report"
	"github.com/sluice-bus/sluice/test/require"
)

func example() *report.Report {
	h := latency.New()
	h.RecordN(1500*time.Microsecond, 9)
	h.Record(4 * time.Millisecond)
	summary := h.Summary()
	published := 10
	r := &report.Report{
		Command: "publish", Published: &published, Measures: "publish to OK", Summary: &summary, Failed: 2,
		Errors: map[string]int{"rate_limited": 1, "conflict": 1}, Parameters: map[string]int{"depth": 3},
	}
	r.Rate(10, 20*time.Millisecond)
	return r
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, example().JSON(&out))
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	for name, want := range map[string]any{
		"published": 10.0, "ms": 20.0, "mps": 500.0, "n": 10.0, "p50": 1.5, "p99": 4.0, "p999": 4.0, "max": 4.0, "avg": 1.75, "failed": 2.0,
	} {
		value := got[name]
		if n, ok := value.(float64); ok && n > 1.49 && n < 1.51 {
			value = 1.5 // the histogram has three digits
		}
		if value != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if _, ok := got["consumed"]; ok {
		t.Error("a publish has consumed")
	}
	if errors := got["errors"].(map[string]any); errors["conflict"] != 1.0 {
		t.Errorf("errors %v", errors)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	r := example()
	r.Summary = &latency.Summary{N: 10, P50: 1.5, P90: 2, P99: 3, P999: 4, Max: 5, Avg: 1.75}
	require.NoError(t, r.Table(&out))
	const want = `published   10 events in 20.0 ms: 500/s
latency     publish to OK
            p50 1.500  p90 2.000  p99 3.000  p99.9 4.000  max 5.000  avg 1.750 ms
duplicates  0
failed      2
            conflict: 1
            rate_limited: 1
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
