package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/test/testkit"
)

// lives is a real sidecar that is killed and started again.
type lives struct {
	*testkit.Sidecar
	dir string
}

func live(t *testing.T, delivery string) *lives {
	t.Helper()
	dir := t.TempDir()
	policies := "- name: \"*\"\n  connection: {rate: 0}\n  publish: {rate: 0}\n  delivery: {" + delivery + "}\n"
	if err := os.WriteFile(filepath.Join(dir, "policies.yaml"), []byte(policies), 0o600); err != nil {
		t.Fatal(err)
	}
	l := &lives{dir: dir}
	l.start(t)
	return l
}

func (l *lives) start(t *testing.T, args ...string) {
	t.Helper()
	l.Sidecar = testkit.StartSidecar(t, filepath.Join(l.dir, "data"), append([]string{"--policies", filepath.Join(l.dir, "policies.yaml")},
		args...)...)
}

// restart kills the sidecar, and starts it again on the same ports.
func (l *lives) restart(t *testing.T) {
	t.Helper()
	l.Kill()
	l.start(t, "--listen", l.Listen, "--replay-listen", l.Replay)
}

func (l *lives) process(args ...string) program.Process {
	env := map[string]string{"SLUICE_URL": l.URL(), "SLUICE_REPLAY_URL": l.ReplayURL(), "SLUICE_OPS_URL": l.OpsURL()}
	return program.Process{Args: args, LookupEnv: func(name string) (value string, ok bool) {
		value, ok = env[name]
		return value, ok
	}}
}

// run runs a command to its end.
func (l *lives) run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := l.process(args...)
	p.Stdin, p.Stdout, p.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if status := program.Run(spec(), p); status != 0 {
		t.Fatalf("%v: status %d, stderr %q", args, status, stderr.String())
	}
	return stdout.String()
}

// numbers are the lines {"n":from} to {"n":to-1}.
func numbers(from, to int) string {
	var lines strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintf(&lines, "{\"n\":%d}\n", n)
	}
	return lines.String()
}

var numbered = regexp.MustCompile(`\{"n":(\d+)\}`)

// wantEachOnce checks that output has all numbers below count, once each.
func wantEachOnce(t *testing.T, output string, count int) {
	t.Helper()
	times := map[string]int{}
	for _, found := range numbered.FindAllStringSubmatch(output, -1) {
		times[found[1]]++
	}
	for n, count := range times {
		if count != 1 {
			t.Errorf("%s is there %d times", n, count)
		}
	}
	if len(times) != count {
		t.Errorf("%d different events; want %d", len(times), count)
	}
}

func (r *running) wantOneOutage(t *testing.T) {
	t.Helper()
	said := r.stderr.String()
	if strings.Count(said, "the connection to the sidecar is lost, trying again: ") != 1 ||
		strings.Count(said, "the connection is back") != 1 {
		t.Errorf("stderr %q", said)
	}
}

func TestSubSurvivesAKilledSidecar(t *testing.T) {
	const before, after = 300, 200
	for name, args := range map[string][]string{"group": {"--group", "g", "--from", "earliest"}, "alone": {"--from", "earliest"}} {
		t.Run(name, func(t *testing.T) {
			l := live(t, "max_inflight: 50")
			l.run(t, numbers(0, before), "pub", "t", "--lines")
			r := background(t, l.process(append([]string{"sub", "t"}, args...)...))
			var printed strings.Builder
			read := func(lines int) {
				for range lines {
					if !r.stdout.Scan() {
						t.Fatalf("the output ended: status %d, stderr %q", <-r.status, r.stderr.String())
					}
					printed.WriteString(r.stdout.Text() + "\n")
				}
			}
			read(before / 2) // acks are on their way
			l.restart(t)
			l.run(t, numbers(before, before+after), "pub", "t", "--lines")
			read(before/2 + after)
			r.signals <- os.Interrupt
			for r.stdout.Scan() {
				printed.WriteString(r.stdout.Text() + "\n")
			}
			r.wantStatus(t, 0)
			wantEachOnce(t, printed.String(), before+after)
			r.wantOneOutage(t)
		})
	}
}

func TestPubSurvivesAKilledSidecar(t *testing.T) {
	for name, args := range map[string][]string{"unkeyed": nil, "keyed": {"--key", "k"}} {
		t.Run(name, func(t *testing.T) {
			l := live(t, "")
			const count = 6000
			pub := background(t, l.process(append([]string{"pub", "t", "--lines", "-o", "json"}, args...)...))
			write := func(from, to int) {
				if _, err := pub.stdin.Write([]byte(numbers(from, to))); err != nil {
					t.Fatal(err)
				}
			}
			write(0, count/3) // some are answered, some are on their way
			l.Kill()
			write(count/3, count/2) // while it is away
			l.start(t, "--listen", l.Listen, "--replay-listen", l.Replay)
			write(count/2, count)
			_ = pub.stdin.Close()
			var summary pubSummary
			if !pub.stdout.Scan() || json.Unmarshal(pub.stdout.Bytes(), &summary) != nil {
				t.Fatalf("no summary: %q, status %d, stderr %q", pub.stdout.Text(), <-pub.status, pub.stderr.String())
			}
			pub.wantStatus(t, 0)
			if summary.Published != count || summary.Failed != 0 || summary.Duplicates != 0 || summary.Unanswered != 0 {
				t.Errorf("summary %+v", summary)
			}
			pub.wantOneOutage(t)
			stored := l.run(t, "", "replay", "t", "--max", "0", "-o", "json")
			wantEachOnce(t, stored, count)
			if name == "keyed" {
				wantInSeqOrder(t, stored)
			}
		})
	}
}

// wantInSeqOrder checks that the numbers rise with the places in the log.
func wantInSeqOrder(t *testing.T, stored string) {
	t.Helper()
	bySeq := map[uint64]int{}
	for line := range strings.Lines(stored) {
		var e struct {
			Seq     uint64
			Payload struct{ N int }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		bySeq[e.Seq] = e.Payload.N
	}
	for seq, n := range bySeq {
		if next, ok := bySeq[seq+1]; ok && next <= n {
			t.Fatalf("%d is at %d, and %d behind it", n, seq, next)
		}
	}
}

func TestPubGivesUp(t *testing.T) {
	l := live(t, "")
	pub := background(t, l.process("pub", "t", "--lines", "--timeout", "500ms"))
	if _, err := pub.stdin.Write([]byte(numbers(0, 1))); err != nil {
		t.Fatal(err)
	}
	l.Kill()
	if _, err := pub.stdin.Write([]byte(numbers(1, 4))); err != nil {
		t.Fatal(err)
	}
	if !pub.stdout.Scan() || !strings.Contains(pub.stdout.Text(), " not answered") {
		t.Errorf("summary %q", pub.stdout.Text())
	}
	pub.wantStatus(t, 1)
	for _, want := range []string{"on it is not known which events were published: the sidecar did not answer within 500ms (--timeout)",
		"refused"} {
		if !strings.Contains(pub.stderr.String(), want) {
			t.Errorf("%q is missing in %q", want, pub.stderr.String())
		}
	}
}

// A sidecar that lost its log begins with seq 1 again.
func TestSubAloneSeesANewLog(t *testing.T) {
	l := live(t, "")
	l.run(t, numbers(0, 50), "pub", "t", "--lines", "--key", "k")
	r := background(t, l.process("sub", "t", "--from", "earliest"))
	for n := range 50 {
		r.want(t, fmt.Sprintf(`{"n":%d}`, n))
	}
	l.Kill()
	if err := os.RemoveAll(filepath.Join(l.dir, "data")); err != nil {
		t.Fatal(err)
	}
	l.start(t, "--listen", l.Listen, "--replay-listen", l.Replay)
	l.run(t, numbers(50, 60), "pub", "t", "--lines", "--key", "k")
	for n := range 10 {
		r.want(t, fmt.Sprintf(`{"n":%d}`, 50+n))
	}
	r.signals <- os.Interrupt
	r.wantStatus(t, 0)
	r.wantOneOutage(t)
}

// An event that gets no ack by hand in time is delivered again.
func TestSubByHandSeesWhatComesAgain(t *testing.T) {
	l := live(t, "ack_timeout: 300ms, backoff: {min: 1ms, max: 1ms}")
	l.run(t, "", "pub", "t", "1", "--id", "a")
	r := background(t, l.process("sub", "t", "--group", "g", "--from", "earliest", "--ack", "manual"))
	r.want(t, "  a  1")
	r.want(t, "  a  attempt=2  1")
	fmt.Fprintln(r.stdin, "ack a")
	_ = r.stdin.Close()
	go func() { // a third attempt may have come meanwhile
		for r.stdout.Scan() {
		}
	}()
	r.wantStatus(t, 0)
}
