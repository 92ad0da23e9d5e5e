package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/program"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// running is a command in the background.
type running struct {
	stdin   *io.PipeWriter
	stdout  *bufio.Scanner
	stderr  bytes.Buffer
	signals chan os.Signal
	status  chan int
}

func subscribe(t *testing.T, sidecar *sluicetest.Sidecar, args ...string) *running {
	t.Helper()
	return background(t, process(sidecar, nil, append([]string{"sub"}, args...)...))
}

// background runs a command whose input and output are pipes.
func background(t *testing.T, p program.Process) *running {
	t.Helper()
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	r := &running{stdin: stdin, stdout: bufio.NewScanner(stdout), signals: make(chan os.Signal, 2), status: make(chan int, 1)}
	p.Stdin, p.Stdout, p.Stderr, p.Signals = in, out, &r.stderr, r.signals
	go func() {
		r.status <- program.Run(spec(), p)
		_ = in.Close() // ends what reads lines
		_ = out.Close()
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
		got := run(t, sidecar, "", "sub", "orders", "--group", "g", "--from", "earliest", "--max", "2", "-o", "json").wantOK(t)
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
	run(t, sidecar, "", "sub", "t", "--after-id", "x").wantFailure(t, 2, "afterId goes with from afterId")
	run(t, sidecar, "", "sub", "t", "--from", "1h", "--positions", "{}").wantFailure(t, 2, "positions goes with from positions")
	run(t, sidecar, "hm\n", "sub", "t", "--group", "g", "--ack", "manual").wantFailure(t, 1, `"hm" is not understood`)

}

func TestSubOutlivesItsConnection(t *testing.T) {
	for group, args := range map[string][]string{"": {"--from", "earliest"}, "g": {"--group", "g", "--from", "earliest"}} {
		t.Run("group "+group, func(t *testing.T) {
			sidecar := start(t, sluicetest.Options{})
			fill(t, sidecar, "t", 1)
			r := subscribe(t, sidecar, append([]string{"t", "--max", "2"}, args...)...)
			r.want(t, `{"n":0}`)
			for group != "" && sidecar.Acked("t", group) == 0 { // it would be delivered again
				pause.For(t.Context(), 5*time.Millisecond)
			}
			sidecar.Disconnect()
			run(t, sidecar, "", "pub", "t", `{"n":1}`).wantOK(t)
			r.want(t, `{"n":1}`)
			r.wantStatus(t, 0)
			said := r.stderr.String()
			if strings.Count(said, "the connection to the sidecar is lost, trying again: ") != 1 ||
				strings.Count(said, "the connection is back") != 1 ||
				strings.Contains(said, "may be missing") != (group == "") {
				t.Errorf("stderr %q", said)
			}
		})
	}
}

// A refusal of the new connection that holds for good ends it.
func TestSubThatIsRefusedLater(t *testing.T) {
	v := newView(&subCommand{Group: "g"}, &program.App{Stderr: new(bytes.Buffer)}, "")
	v.connection(sluice.ConnectionChange{Topic: "t", Group: "g", Err: wire.Errorf(wire.Overloaded, "later")})
	v.connection(sluice.ConnectionChange{Topic: "t", Group: "g", Err: wire.Errorf(wire.Unauthorized, "no such token")})
	if err := v.run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no such token") {
		t.Errorf("it ended with %v", err)
	}
}
