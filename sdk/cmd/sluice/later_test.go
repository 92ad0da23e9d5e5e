package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

func TestScheduled(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	at := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	deliverAt := "--deliver-at=" + at.Format(time.RFC3339)
	got := run(t, sidecar, "", "pub", "t", `1`, "--id", "a", "--key", "k k", deliverAt).wantOK(t)
	shown := milliseconds(at.UnixMilli())
	if want := "a  scheduled for " + shown + "\n"; got.stdout != want {
		t.Errorf("receipt %q; want %q", got.stdout, want)
	}
	run(t, sidecar, "1\n2\n", "pub", "t", "--lines", "--delay", "1h").wantOK(t)
	if n := len(sidecar.Events("t")); n != 0 {
		t.Errorf("%d events are in the log", n)
	}
	got = run(t, sidecar, "", "scheduled", "list", "t", "-o", "wide").wantOK(t)
	if rows := strings.Split(got.stdout, "\n"); len(rows) != 5 || rows[3] != fmt.Sprintf("%-36s  \"k k\"  %s (in 23h)", "a", shown) {
		t.Errorf("listed %q", rows)
	}
	got = run(t, sidecar, "", "scheduled", "list", "t", "-o", "json", "--max", "0").wantOK(t)
	if want := fmt.Sprintf("{\"id\":\"a\",\"key\":\"k k\",\"deliver_at\":%d}]}\n", at.UnixMilli()); !strings.HasSuffix(got.stdout, want) {
		t.Errorf("listed %q; want %q last", got.stdout, want)
	}
	if got = run(t, sidecar, "", "scheduled", "cancel", "t", "a", "--yes").wantOK(t); got.stdout != "a  cancelled\n" {
		t.Errorf("cancelled: %q", got.stdout)
	}
	run(t, sidecar, "", "scheduled", "cancel", "t", "a").wantFailure(t, 2, "--yes")
	run(t, sidecar, "", "scheduled", "cancel", "t", "a", "--yes").wantFailure(t, 3, "not_found")
	got = run(t, sidecar, "", "scheduled", "list", "t", "--max", "1").wantOK(t)
	if !strings.HasSuffix(got.stdout, "\n\n1 of 2 are shown: --max 0 shows all\n") {
		t.Errorf("listed %q", got.stdout)
	}
	if got = run(t, sidecar, "", "pub", "t", `1`, "--id", "now", "--delay", "0s").wantOK(t); got.stdout != "now  partition 0  seq 1\n" {
		t.Errorf("at once: %q", got.stdout)
	}
	run(t, sidecar, "", "pub", "t", `1`, "--ttl", "1500us").wantOK(t)
	if e := sidecar.Events("t"); len(e) != 2 || e[1].TTLMS != 2 {
		t.Errorf("events %+v", e)
	}
	for sentence, args := range map[string][]string{
		"--delay=-1s":            {"--delay=-1s"},
		"which is a year":        {"--delay=10000h"},
		"more than 0":            {"--ttl=0s"},
		"can't be used together": {"--delay=1s", deliverAt},
		"--deliver-at":           {"--deliver-at=tomorrow"},
	} {
		run(t, sidecar, "", append([]string{"pub", "t", "1"}, args...)...).wantFailure(t, 2, sentence)
	}
}

func TestLatest(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	for i, key := range []string{"a", "b", "b2", "a", "b2"} {
		payload := fmt.Sprint(i)
		if i == 4 {
			payload = "null"
		}
		run(t, sidecar, "", "pub", "t", payload, "--id", fmt.Sprint("e", i), "--key", key).wantOK(t)
	}
	got := run(t, sidecar, "", "latest", "t").wantOK(t)
	for _, want := range []string{"0/4  e3  key=a  3\n", "0/2  e1  key=b  1\n", "\npositions {\"0\":5}\n"} {
		if !strings.Contains(got.stdout, want) || strings.Count(got.stdout, "\n") != 3 {
			t.Errorf("printed %q; want %q", got.stdout, want)
		}
	}
	got = run(t, sidecar, "", "latest", "t", "-o", "json", "--key", "a", "--prefix", "b2").wantOK(t)
	if lines := strings.Split(got.stdout, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], `{"id":"e3",`) ||
		lines[1] != `{"positions":{"0":5}}` {
		t.Errorf("printed %q", lines)
	}
	run(t, sidecar, "", "latest", "other").wantFailure(t, 3, "not_found")
	run(t, sidecar, "", "latest", "no/topic").wantFailure(t, 1, "bad_request")

	got = run(t, sidecar, "", "sub", "t", "--from", "positions", "--positions", `{"0":3}`, "--max", "1").wantOK(t)
	if !strings.Contains(got.stdout, "0/4  e3") {
		t.Errorf("from positions: %q", got.stdout)
	}
	run(t, sidecar, "", "sub", "t", "--from", "positions").wantFailure(t, 2, "--positions")
}
