package testkit

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/require"
)

// TestMain is the program under test, too, where the first argument says so.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "program" {
		os.Exit(program(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

// program prints a line and waits for SIGTERM, or ends at once.
func program(line string) int {
	terminated, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	fmt.Fprintln(os.Stderr, "the log")
	if line == "" {
		return 3
	}
	fmt.Println(line)
	<-terminated.Done()
	return 0
}

func run(t *testing.T, line string) (*Process, string, error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	var ready struct{ HTTP string }
	p, err := start(self, &ready, []string{"program", line})
	if err == nil {
		t.Cleanup(p.Kill)
	}
	return p, ready.HTTP, err
}

func TestReadyAndStop(t *testing.T) {
	p, http, err := run(t, `{"ready":true,"http":"127.0.0.1:1"}`)
	if err != nil || http != "127.0.0.1:1" || p.PID() == 0 {
		t.Fatalf("%q, %v", http, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // the second finds it stopped
		if err := p.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	if p.Log() != "the log\n" {
		t.Errorf("log %q", p.Log())
	}
}

func TestKill(t *testing.T) {
	p, _, err := run(t, `{"ready":true}`)
	require.NoError(t, err)
	p.Kill()
	if err := p.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("after a kill: %v", err)
	}
}

func TestNotReady(t *testing.T) {
	for line, want := range map[string]string{
		"":                         "ended before it was ready: exit status 3\nthe log",
		"hello":                    `unexpected ready line "hello"`,
		`{"ready":false}`:          "unexpected ready line",
		`{"ready":true,"http":17}`: "unexpected ready line",
	} {
		if _, _, err := run(t, line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var kept tail
	for range 5 {
		if _, err := kept.Write([]byte(strings.Repeat("a", logBytes))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := kept.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	if len(kept.buf) > 2*logBytes || !strings.HasSuffix(kept.last(logBytes), "aend") {
		t.Errorf("%d bytes are kept", len(kept.buf))
	}
}

func TestLaunch(t *testing.T) {
	p := Self()
	l := p.Launch(t, []string{"ANY=thing"}, "program", "first\nsecond")
	if line, err := l.Stdout.ReadString('\n'); err != nil || line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	require.NoError(t, l.Process.Signal(syscall.SIGTERM))
	if out, log, status := l.Ended(t); out != "second\n" || log != "the log\n" || status != 0 {
		t.Errorf("%q, %q, %d", out, log, status)
	}
	if out, log, status := p.Launch(t, nil, "program", "").Ended(t); out != "" || log != "the log\n" || status != 3 {
		t.Errorf("%q, %q, %d", out, log, status)
	}
}
