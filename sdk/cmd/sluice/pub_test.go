package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

func TestPub(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	t.Chdir(t.TempDir())
	if err := os.WriteFile("payload", []byte(" [ 1.10, 2 ]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(t, sidecar, "", "pub", "t", `{"a": 1}`, "--id", "x", "--key", "k", "--header", "h=a=b,c", "--header", "i=").wantOK(t)
	if got.stdout != "x  partition 0  seq 1\n" {
		t.Errorf("receipt %q", got.stdout)
	}
	if got = run(t, sidecar, "", "pub", "t", `{"a": 1}`, "--id", "x", "--key", "k", "--header", "h=a=b,c", "--header", "i=",
		"-o", "json").wantOK(t); !strings.Contains(got.stdout, `"duplicate":true`) {
		t.Errorf("again: %q", got.stdout)
	}
	run(t, sidecar, "", "pub", "t", `{"a": 1}`, "--id", "x").wantFailure(t, 1, "conflict") // the headers are others
	run(t, sidecar, "", "pub", "t", "--file", "payload").wantOK(t)
	run(t, sidecar, `"from stdin"`, "pub", "t").wantOK(t)
	run(t, sidecar, "\x00\xff", "pub", "t", "--bytes", "--file", "-").wantOK(t)

	events := sidecar.Events("t")
	var payloads []string
	for _, e := range events {
		payloads = append(payloads, string(e.Payload))
	}
	if want := []string{`{"a":1}`, `[1.10,2]`, `"from stdin"`, "\x00\xff"}; strings.Join(payloads, "|") != strings.Join(want, "|") {
		t.Errorf("payloads %q", payloads)
	}
	if h, _ := events[0].Headers.Get("h"); h != "a=b,c" || events[0].Key != "k" || len(events[1].ID) != 36 {
		t.Errorf("events %+v", events)
	}
	if h, _ := events[3].Headers.Get("content-type"); !events[3].Binary || h != "application/octet-stream" {
		t.Errorf("bytes: %+v", events[3])
	}
}

func TestPubRefusesWhatMakesNoSense(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	for want, args := range map[string][]string{
		"the payload is not JSON": {"t", "hello"},
		"topic":                   {"no/topic", "1"},
		"expected NAME=VALUE":     {"t", "1", "--header", "x"},
		"given twice":             {"t", "1", "--file", "-"},
		"--id names one event":    {"t", "--lines", "--id", "x"},
		"a payload cannot be":     {"t", "1", "--lines"},
		"can't be used together":  {"t", "--lines", "--bytes"},
	} {
		run(t, sidecar, "", append([]string{"pub"}, args...)...).wantFailure(t, 2, want)
	}
	run(t, sidecar, "", "pub", "t", "--file", "not-there").wantFailure(t, 1, "not-there")
}

// refusing makes a sidecar that refuses every nth try, telling to come back in a millisecond.
func refusing(n int) sluicetest.Options {
	tries := 0
	return sluicetest.Options{Refuse: func(*wire.Event) *wire.Error {
		if tries++; tries%n == 0 {
			return &wire.Error{Code: wire.RateLimited, Msg: "slow down", RetryAfter: time.Millisecond, Scope: "topic"}
		}
		return nil
	}}
}

func TestPubWaitsOutARateLimit(t *testing.T) {
	sidecar := start(t, refusing(2))
	for i := range 4 {
		run(t, sidecar, "", "pub", "t", fmt.Sprint(i)).wantOK(t)
	}
	if n := len(sidecar.Events("t")); n != 4 {
		t.Errorf("%d events", n)
	}
}

func TestPubLines(t *testing.T) {
	for name, args := range map[string][]string{"unkeyed": nil, "keyed": {"--key", "k"}} {
		t.Run(name, func(t *testing.T) {
			sidecar := start(t, refusing(30))
			var in strings.Builder
			const count = 1000
			for i := range count {
				fmt.Fprintf(&in, "{\"n\": %d}\n\n", i)
			}
			got := run(t, sidecar, in.String(), append([]string{"pub", "t", "--lines", "-o", "json"}, args...)...).wantOK(t)
			var summary pubSummary
			if err := json.Unmarshal([]byte(got.stdout), &summary); err != nil {
				t.Fatal(err)
			}
			if summary.Published != count || summary.Failed != 0 || summary.Duplicates != 0 || summary.Waits == 0 {
				t.Errorf("summary %+v", summary)
			}
			seen := map[string]bool{}
			for _, e := range sidecar.Events("t") {
				seen[string(e.Payload)] = true
			}
			if len(seen) != count {
				t.Errorf("%d different events", len(seen))
			}
		})
	}
}

// The order survives that batches are too large for a bucket.
func TestPubLinesWithAKeyKeepTheirOrder(t *testing.T) {
	sidecar := start(t, sluicetest.Options{Burst: 7})
	var in strings.Builder
	for i := range 1000 {
		fmt.Fprintln(&in, i)
	}
	got := run(t, sidecar, in.String(), "pub", "t", "--lines", "--key", "k").wantOK(t)
	if !strings.HasPrefix(got.stdout, "published 1000 events in ") {
		t.Errorf("summary %q", got.stdout)
	}
	for i, e := range sidecar.Events("t") {
		if string(e.Payload) != fmt.Sprint(i) || e.Key != "k" {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
}

func TestPubLinesNamesWhatFailed(t *testing.T) {
	sidecar := start(t, sluicetest.Options{Refuse: func(e *wire.Event) *wire.Error {
		if string(e.Payload) == `"paused"` {
			return wire.Errorf(wire.TopicPaused, "the topic is paused")
		}
		return nil
	}})
	got := run(t, sidecar, "1\nnot json\n\"paused\"\n4\n", "pub", "t", "--lines").wantFailure(t, 4, "2 lines were not published")
	for _, want := range []string{"line 2: not JSON", "line 3: topic_paused"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("%q is missing in %q", want, got.stderr)
		}
	}
	if n := len(sidecar.Events("t")); n != 2 || !strings.HasPrefix(got.stdout, "published 2 events") {
		t.Errorf("%d events, %q", n, got.stdout)
	}
}

func TestPubThatGetsNoAnswerGivesUp(t *testing.T) {
	unanswered := sluicetest.Options{Fate: func(op string) sluicetest.Fate {
		if op == wire.OpPublish {
			return sluicetest.Ignored
		}
		return sluicetest.Served
	}}
	away := sluicetest.Options{Refuse: func(*wire.Event) *wire.Error {
		return &wire.Error{Code: wire.StoreUnavailable, Msg: "the store is away", RetryAfter: time.Millisecond}
	}}
	run(t, start(t, unanswered), "", "pub", "t", "1", "--timeout", "50ms").wantFailure(t, 1, "did not answer within 50ms (--timeout)\n")
	// With more and more time, until an answer has come in it.
	patiently := func(input, sentence string, args ...string) (got outcome) {
		for timeout := 50 * time.Millisecond; timeout < 10*time.Second && !strings.Contains(got.stderr, sentence); timeout *= 2 {
			got = run(t, start(t, away), input, append(args, "--timeout", timeout.String())...)
		}
		return got.wantFailure(t, 1, sentence)
	}
	patiently("", "(--timeout): store_unavailable: the store is away", "pub", "t", "1")
	got := patiently("1\n2\n", "from line 1 on it is not known", "pub", "t", "--lines")
	if !strings.HasPrefix(got.stdout, "published 0 events in ") || !strings.Contains(got.stdout, ", 2 not answered, ") {
		t.Errorf("summary %q", got.stdout)
	}
}

// Being asked for time is an answer: however long it takes in all, the time to wait for an answer
// starts over.
func TestPubWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		w := newPubWatch(t.Context(), &program.App{Stderr: &said}, time.Second)
		defer w.stop()
		w.notes.watched = true
		time.Sleep(time.Hour) // nothing waits
		w.handed()
		for range 10 {
			time.Sleep(900 * time.Millisecond)
			w.asked(&wire.Error{Code: wire.RateLimited, Msg: "slow down"}, 1234*time.Millisecond)
			time.Sleep(1234 * time.Millisecond)
		}
		if err := w.context.Err(); err != nil {
			t.Fatal(err)
		}
		if got := said.String(); got != "\r\x1b[Kwaiting 1.23s, as the sidecar asks: rate_limited: slow down\n" {
			t.Errorf("it says %q", got)
		}
		w.connection(sluice.ConnectionChange{Err: errors.New("refused")})
		time.Sleep(1100 * time.Millisecond)
		if err := w.cause(context.Canceled); err.Error() != "the sidecar did not answer within 1s (--timeout): refused" {
			t.Error(err)
		}
	})
}

func TestPubThatIsRefusedForGoodByANewConnection(t *testing.T) {
	w := newPubWatch(t.Context(), &program.App{Stderr: io.Discard}, 0)
	defer w.stop()
	w.connection(sluice.ConnectionChange{Err: wire.Errorf(wire.Unauthorized, "no such token")})
	if err := w.cause(context.Canceled); !errors.Is(err, &wire.Error{Code: wire.Unauthorized}) {
		t.Error(err)
	}
}
