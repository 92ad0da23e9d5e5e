package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

func TestFleetTables(t *testing.T) {
	rejected := &admin.Rejection{Policy: "*", Version: 2, Reason: "this\x1b[2J does not go together"}
	plane := startPlane(t, sluicetest.ControlPlaneOptions{
		Sidecars: func() []admin.Sidecar {
			return []admin.Sidecar{
				{NodeID: "s1", Address: "10.0.0.1:8083", Connected: true, LastSeen: time.Now(), Versions: map[string]int64{"*": 2, "orders": 1,
					"gone": 3}},
				{NodeID: "s2", LastSeen: time.Now().Add(-125 * time.Second), Versions: map[string]int64{"*": 1}, Rejected: rejected},
				{NodeID: "s3", LastSeen: time.Now().Add(-49 * time.Hour), Missing: true},
			}
		},
		Topics: func() []admin.FleetTopic {
			return []admin.FleetTopic{
				{Topic: "idle", Rate: 1000, Scope: "sidecar"},
				{Topic: "orders", AllowedPerSecond: 499.6, DeniedPerSecond: 0.25, Rate: 500.5, Scope: "fleet", Policy: "orders.*",
					Sidecars: []string{"s1", "s2"}, Refusals: map[string]int64{"rate_limited": 7, "conflict": 7, "bad_request": 30}},
				{Topic: "paused", DeniedPerSecond: 3, Rate: 1, Paused: true, Scope: "sidecar", Policy: "paused", Sidecars: []string{"s1"}},
				{Topic: "free", Scope: "sidecar", Policy: "*"},
			}
		},
	})
	for _, name := range []string{"*", "orders"} {
		plane.ok("policy", "set", name, "publish.rate=1")
	}
	plane.ok("policy", "set", "*", "publish.rate=2")
	const sidecars = `NODE  CONNECTED  LAST SEEN  ACKED  BEHIND  REJECTED
s3    missing    2d ago     0      0       -
s2    no         2m ago     0      1       * version 2: "this\x1b[2J does not go together"
s1    yes        0s ago     2      0       -
`
	want(t, plane.ok("fleet"), sidecars)
	want(t, plane.ok("fleet", "sidecars"), sidecars)
	want(t, plane.ok("fleet", "forget", "s3", "--yes"), "forgot s3; replays of the fleet go without the events that only it had\n")
	plane.run("", "fleet", "forget", "s2").wantFailure(t, 2, "--yes")
	plane.run("", "fleet", "forget", "s2", "--yes").wantFailure(t, 3, "no sidecar \"s2\" is missing")
	want(t, plane.ok("fleet", "topics"), `TOPIC   ALLOWED/S  DENIED/S  LIMIT/S  SCOPE    POLICY    SIDECARS  REFUSALS
orders  500        0.2       500.5    fleet    orders.*  2         bad_request:30,conflict:7,rate_limited:7
paused  0          3         paused   sidecar  paused    1         -
idle    0          0         1000     sidecar  defaults  0         -
free    0          0         none     sidecar  *         0         -
`)
	empty := startPlane(t, sluicetest.ControlPlaneOptions{})
	want(t, empty.ok("fleet"), "no sidecars yet: start them with --control-plane HOST:PORT\n")
	want(t, empty.ok("fleet", "topics"), "no topics: no sidecar has published, and no policy names one\n")
}

// lines ends a command with a signal once it has printed so many.
type lines struct {
	bytes.Buffer
	left    int
	signals chan os.Signal
}

func (l *lines) Write(p []byte) (int, error) {
	if l.left -= bytes.Count(p, []byte("\n")); l.left <= 0 && l.signals != nil {
		l.signals <- syscall.SIGINT
		l.signals = nil
	}
	return l.Buffer.Write(p)
}

func TestFleetTopicsWatch(t *testing.T) {
	var asked atomic.Int64
	plane := startPlane(t, sluicetest.ControlPlaneOptions{Topics: func() []admin.FleetTopic {
		return []admin.FleetTopic{{Topic: "orders", AllowedPerSecond: float64(asked.Add(1))}}
	}})
	signals := make(chan os.Signal, 1)
	out := &lines{left: 2, signals: signals}
	var stderr bytes.Buffer
	status := program.Run(spec(), program.Process{
		Args:      []string{"fleet", "topics", "--watch", "-o", "json", "--control-plane", plane.URL},
		LookupEnv: func(string) (string, bool) { return "", false },
		Stdout:    out, Stderr: &stderr, Signals: signals,
	})
	if status != 0 || stderr.Len() != 0 {
		t.Errorf("status %d, %s", status, &stderr)
	}
	n := 0
	for line := range strings.Lines(out.String()) {
		var second struct{ Topics []admin.FleetTopic }
		if err := json.Unmarshal([]byte(line), &second); err != nil || len(second.Topics) != 1 ||
			second.Topics[0].AllowedPerSecond != float64(n+1) {
			t.Errorf("line %d: %s, %v", n, line, err)
		}
		n++
	}
	if n != 2 {
		t.Errorf("%d lines", n)
	}
	plane.run("", "fleet", "topics", "--watch", "--control-plane", "http://127.0.0.1:1").wantFailure(t, 1, "refused")
}

// A server that was there is waited for, with what it said last.
func TestWatched(t *testing.T) {
	var stdout, stderr bytes.Buffer
	w := watched{app: &program.App{Name: "sluice", Stdout: &stdout, Stderr: &stderr}, apart: true}
	away := errors.New("connection refused")
	if err := w.print("", away); !errors.Is(err, away) {
		t.Error(err)
	}
	for _, failed := range []error{nil, nil, away} {
		if err := w.print("figures\n", failed); err != nil {
			t.Fatal(err)
		}
	}
	want(t, stderr.String(), "sluice: connection refused\n")
	want(t, stdout.String(), "figures\n\nfigures\n")
	stdout.Reset()
	w.onScreen, w.at = true, time.UnixMilli(0)
	if err := w.print("", away); err != nil {
		t.Fatal(err)
	}
	want(t, stdout.String(), "\x1b[H"+
		"as of 1970-01-01T00:00:00.000Z, not up to date: connection refused\x1b[K\r\n\x1b[K\r\nfigures\x1b[K\r\n\x1b[J")
}

func TestCrop(t *testing.T) {
	const text = "one\ntwo\nthree\nfour\n"
	for _, c := range []struct {
		columns, rows int
		want          string
	}{
		{80, 10, text}, {80, 4, text}, {80, 3, "one\ntwo\n… and 2 more\n"}, {3, 10, "one\ntwo\nthr\nfou\n"}, {0, 0, text},
	} {
		want(t, crop(text, c.columns, c.rows), c.want)
	}
}

func TestInk(t *testing.T) {
	want(t, ink(true).red("x")+ink(true).green("y")+ink(true).yellow("z"), "\x1b[31mx\x1b[0m\x1b[32my\x1b[0m\x1b[33mz\x1b[0m")
	want(t, ink(false).red("x"), "x")
	if inkFor(new(bytes.Buffer)) {
		t.Error("a buffer is coloured")
	}
}
