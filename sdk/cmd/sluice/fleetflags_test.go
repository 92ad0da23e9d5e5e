package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// partialSidecar cannot ask all of its fleet.
func partialSidecar(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event := `{"id":"a","ts":1,"topic":"orders","partition":0,"seq":1,"payload":1}`
		switch {
		case r.FormValue("scope") != "fleet":
			w.WriteHeader(http.StatusTeapot)
		case r.FormValue("partial") != "ok":
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, `{"error":"part of the fleet cannot be asked","code":"partial_fleet","missing":["node-3 (x:1)"]}`)
		case r.URL.Path == "/replay":
			fmt.Fprintf(w, `{"topic":"orders","events":[%s],"count":1,"partial":true,"missing":["node-3 (x:1)"]}`, event)
		default:
			w.Header().Set("Trailer", "Sluice-Missing")
			fmt.Fprintln(w, event)
			w.Header().Set("Sluice-Missing", "node-3 (x:1)")
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func runAt(t *testing.T, url string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := process(nil, strings.NewReader(""), append(args, "--replay-url", url)...)
	p.LookupEnv = func(string) (string, bool) { return "", false }
	p.Stdout, p.Stderr = &stdout, &stderr
	status := program.Run(spec(), p)
	return outcome{status, stdout.String(), stderr.String()}
}

func TestFleetFlags(t *testing.T) {
	url := partialSidecar(t)
	file := filepath.Join(t.TempDir(), "out")
	for _, tc := range []struct {
		args           []string
		status         int
		stdout, stderr []string
	}{
		{[]string{"replay", "orders", "--fleet"}, 1, nil, []string{"part of the fleet", "missing: node-3 (x:1)", "--partial"}},
		{[]string{"export", "orders", file, "--scope", "fleet"}, 1, nil, []string{"part of the fleet", "missing: node-3 (x:1)",
			"--partial"}},
		{[]string{"replay", "orders", "--fleet", "--partial"}, 4, []string{"  a  "}, []string{"missing: node-3 (x:1)"}},
		{[]string{"export", "orders", "-", "--fleet", "--partial"}, 4, []string{`"id":"a"`}, []string{"missing: node-3 (x:1)"}},
		{[]string{"export", "orders", file, "--fleet", "--partial", "-o", "json"}, 4, []string{`"exported":1`,
			`"missing":["node-3 (x:1)"]`}, []string{"missing: node-3 (x:1)"}},
		{[]string{"replay", "orders", "--partial"}, 2, nil, []string{"--fleet"}},
		{[]string{"export", "orders", file, "--partial"}, 2, nil, []string{"--fleet"}},
	} {
		o := runAt(t, url, tc.args...)
		if o.status != tc.status {
			t.Errorf("%q: status %d, stderr %q", tc.args, o.status, o.stderr)
		}
		for _, says := range tc.stdout {
			if !strings.Contains(o.stdout, says) {
				t.Errorf("%q: stdout %q lacks %q", tc.args, o.stdout, says)
			}
		}
		for _, says := range tc.stderr {
			if !strings.Contains(o.stderr, says) {
				t.Errorf("%q: stderr %q lacks %q", tc.args, o.stderr, says)
			}
		}
	}
	if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), "\n") != 1 {
		t.Errorf("%q, %v", text, err)
	}
}

func TestFleetProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.UnixMilli(0)
	p := newFleetProgress(&out)
	if p.shown() {
		t.Error("shown where there is no terminal")
	}
	p.event([]byte(`{}`)) // and nothing happens
	p.out, p.now, p.began, p.drawn = &out, func() time.Time { return now }, now, now
	p.events = 0
	p.fleet([]admin.Peer{{NodeID: "n1", Reachable: true}, {NodeID: "n3", Address: "x:1", Reason: "no\nanswer"},
		{Address: "y:1", Reason: "gone"}})
	now = now.Add(2 * time.Second)
	for range 128 {
		p.event([]byte(`{"id":"a","ts":1767366245000,"topic":"t"}`))
	}
	p.told([]admin.PartCount{{Part: "store of n1", Events: 1_234_567}}) // too soon to be drawn
	now = now.Add(2 * time.Second)
	out.Reset()
	p.told([]admin.PartCount{{Part: "store of n1", Events: 1_234_567}})
	want := "\r\x1b[3A\x1b[J" + "exporting  128 events  32/s  4s  at 2026-01-02 15:04:05\n" +
		"  store of n1  1,234,567\n" +
		"  not reached: n3 (x:1): \"no\\nanswer\"\n" +
		"  not reached: y:1: gone\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	if p.finish(); out.String() != "\r\x1b[4A\x1b[J" {
		t.Errorf("at the end: %q", out.String())
	}
}
