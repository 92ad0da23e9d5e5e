package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// outageLine is a line of a log.
type outageLine struct{ Time, Level, Msg string }

// linesOf parses a log, of which nothing may be anything but a line of slog.
func linesOf(t *testing.T, program, log string) (lines []outageLine) {
	t.Helper()
	for text := range strings.Lines(log) {
		var line outageLine
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Time == "" || line.Level == "" || line.Msg == "" {
			t.Errorf("%s writes past its log: %s", program, text)
		}
		lines = append(lines, line)
	}
	return lines
}

// "a message that repeats is written at most once in 10 s": the store of a sidecar with many topics and groups, and of its
// control plane, goes away and comes back, and one topic's write concern is never met. Whatever libraries are told to
// log, nothing is logged past slog, and no message fills the log.
func TestLogsOfAnOutage(t *testing.T) {
	testkit.Rounds(t, func(t *testing.T, _ uint64) {
		lasts := 12 * time.Second
		if _, soaks := testkit.SoakTime(); soaks {
			lasts = time.Minute
		}
		outage(t, lasts)
	})
}

func outage(t *testing.T, lasts time.Duration) {
	t.Helper()
	const topics = 20
	db := mongotest.Start(t)
	db.Needs(t, mongotest.Restarts)
	for name, value := range map[string]string{
		"MONGODB_LOG_ALL": "info", "GRPC_GO_LOG_SEVERITY_LEVEL": "info", "GRPC_GO_LOG_VERBOSITY_LEVEL": "99",
	} {
		t.Setenv(name, value)
	}
	common := []string{"--store", db.URI(db.NewDatabase(t)), "--store-timeout", "2s", "--log-format", "json"}
	cp := testkit.StartControlPlane(t, common...)
	testkit.Call(t, "PUT", cp.URL()+"/v1/policies/unmet", `{"durability":{"write_concern":"w:4"}}`)
	s := testkit.StartSidecar(t, t.TempDir(), append(common, "--control-plane", cp.XDS(), "--lease", "3s")...)
	publish := func() {
		for i := range topics {
			testkit.Call(t, "POST", fmt.Sprintf("%s/v1/topics/t%d/events", s.URL(), i), "1")
		}
	}
	for range 30 {
		testkit.Call(t, "POST", s.URL()+"/v1/topics/unmet/events", "1")
	}
	publish()
	for i := range topics {
		testkit.Call(t, "POST", fmt.Sprintf("%s/v1/topics/t%d/groups/g/pull", s.URL(), i), `{"max":1,"wait_ms":0,"opts":{"from":"earliest"}}`)
	}
	db.Stop()
	away, end := context.WithTimeout(t.Context(), lasts)
	defer end()
	for pause.For(away, 200*time.Millisecond) {
		publish()
		testkit.Call(t, "PUT", cp.URL()+"/v1/policies/p", `{"publish":{"rate":5}}`)
	}
	db.Restart()
	testkit.Eventually(t, "the store is back", func() bool {
		return testkit.ParseObject(t, testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "").Body).Text("store.state") == "ok"
	})
	// Those before and behind it are more, and a line may name one of a few topics or groups.
	most := (int(lasts/(10*time.Second)) + 3) * 10
	for program, log := range map[string]string{"the sidecar": s.Log(), "the control plane": cp.Log()} {
		counts := map[string]int{}
		lines := linesOf(t, program, log)
		for _, line := range lines {
			counts[line.Level+" "+line.Msg]++
		}
		t.Logf("%s: %d lines, %v", program, len(lines), counts)
		for what, n := range counts {
			if n > most {
				t.Errorf("%s logs %q %d times; at most %d are wanted", program, what, n, most)
			}
		}
	}
}
