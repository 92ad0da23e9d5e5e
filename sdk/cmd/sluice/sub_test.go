package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/sluicetest"
)

// running is a subscription in the background.
type running struct {
	stdin   *io.PipeWriter
	stdout  *bufio.Scanner
	stderr  bytes.Buffer
	signals chan os.Signal
	status  chan int
}

func subscribe(t *testing.T, sidecar *sluicetest.Sidecar, args ...string) *running {
	t.Helper()
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	r := &running{stdin: stdin, stdout: bufio.NewScanner(stdout), signals: make(chan os.Signal, 2), status: make(chan int, 1)}
	p := process(sidecar, in, append([]string{"sub"}, args...)...)
	p.Stdout, p.Stderr, p.Signals = out, &r.stderr, r.signals
	go func() {
		r.status <- program.Run(spec(), p)
		_ = in.Close() // ends what reads lines
	}()
	t.Cleanup(func() { _ = stdin.Close() })
	return r
}

func (r *running) want(t *testing.T, end string) {
	t.Helper()
	if !r.stdout.Scan() || !strings.HasSuffix(r.stdout.Text(), end) {
		t.Fatalf("got %q, want … %q", r.stdout.Text(), end)
	}
}

func (r *running) wantStatus(t *testing.T, status int) {
	t.Helper()
	if got := <-r.status; got != status {
		t.Fatalf("status %d, stderr %q", got, r.stderr.String())
	}
}

func TestSubIsInterrupted(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "orders", 2)
	r := subscribe(t, sidecar, "orders", "--group", "g", "--from", "earliest")
	r.want(t, `0/1  e0  {"n":0}`)
	r.want(t, `0/2  e1  {"n":1}`)
	r.signals <- os.Interrupt
	r.wantStatus(t, 0)
	if n := sidecar.Acked("orders", "g"); n != 2 {
		t.Errorf("%d acked", n)
	}
}

func TestSubAcksWhatItPrintedAndNoMore(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "orders", 10)
	for i := range 3 {
		got := run(t, sidecar, "", "sub", "orders", "--group", "g", "--from", "earliest", "--max", "2", "--json").wantOK(t)
		if !strings.HasPrefix(got.stdout, fmt.Sprintf(`{"id":"e%d",`, 2*i)) || strings.Count(got.stdout, "\n") != 2 {
			t.Errorf("run %d printed %s", i, got.stdout)
		}
	}
	if n := sidecar.Acked("orders", "g"); n != 6 {
		t.Errorf("%d acked", n)
	}
}

func TestSubTakesAcksFromItsInput(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "orders", 3)
	r := subscribe(t, sidecar, "orders", "--group", "g", "--from", "earliest", "--ack", "manual", "--max-inflight", "2")
	r.want(t, `e0  {"n":0}`)
	r.want(t, `e1  {"n":1}`)
	fmt.Fprintln(r.stdin, "ack e1")
	r.want(t, `e2  {"n":2}`)
	fmt.Fprintln(r.stdin, "nack e0")
	r.want(t, `e0  attempt=2  {"n":0}`)
	fmt.Fprintln(r.stdin, "ack e0 e2")
	_ = r.stdin.Close()
	r.wantStatus(t, 0)
	if n := sidecar.Acked("orders", "g"); n != 3 {
		t.Errorf("%d acked", n)
	}
}

func TestSubFails(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	run(t, sidecar, "", "sub", "t", "--ack", "manual").wantFailure(t, 2, "needs a --group")
	run(t, sidecar, "", "sub", "t", "--from", "afterId").wantFailure(t, 2, "afterId is missing")
	run(t, sidecar, "hm\n", "sub", "t", "--group", "g", "--ack", "manual").wantFailure(t, 1, `"hm" is not understood`)

	fill(t, sidecar, "t", 1)
	r := subscribe(t, sidecar, "t", "--from", "earliest")
	r.want(t, `{"n":0}`)
	sidecar.Disconnect()
	r.wantStatus(t, 1)
	if !strings.Contains(r.stderr.String(), "connection is closed") {
		t.Errorf("stderr %q", r.stderr.String())
	}
}
