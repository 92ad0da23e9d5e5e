package contract

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/testkit"
)

// operator types commands of the command line about a sidecar.
type operator struct {
	t *testing.T
	s *server
}

// types runs a command, checks its exit status, and returns what it printed.
func (o operator) types(status int, line string) string {
	o.t.Helper()
	env := []string{
		"SLUICE_URL=" + o.s.URL(), "SLUICE_REPLAY_URL=" + o.s.ReplayURL(), "SLUICE_OPS_URL=" + o.s.OpsURL(), "XDG_CONFIG_HOME=/nowhere",
	}
	stdout, stderr, got := testkit.ClientProgram.Launch(o.t, env, strings.Fields(line)...).Ended(o.t)
	o.t.Logf("$ sluice %s\n%s%s", line, stdout, stderr)
	if got != status {
		o.t.Fatalf("sluice %s: status %d, want %d", line, got, status)
	}
	return stdout + stderr
}

// sees runs a command that succeeds until what it prints has all of the texts.
func (o operator) sees(line string, texts ...string) {
	o.t.Helper()
	testkit.Eventually(o.t, "sluice "+line+" shows "+strings.Join(texts, ", "), func() bool {
		shown := strings.Join(strings.Fields(o.types(0, line)), " ")
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				return false
			}
		}
		return true
	})
}

// refused runs a command that fails, and checks its exit status and its sentence.
func (o operator) refused(status int, line, sentence string) {
	o.t.Helper()
	if shown := o.types(status, line); !strings.Contains(shown, sentence) {
		o.t.Errorf("sluice %s: want %q", line, sentence)
	}
}

// An incident, as the command line shows it: a consumer that does not ack, a store that goes away and comes back, dead letters.
// What each command shows is what is so, and no command does what it was not asked to.
func TestCommandLineInAnIncident(t *testing.T) {
	t.Parallel()
	db := newOutage(t)
	s := db.start(t, awayPolicies, quick...)
	o := operator{t, s}
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"orders","group":"billing","opts":{"from":"earliest","maxInflight":1}}`)
	for _, id := range []string{"a", "b"} {
		s.put(t, "orders", id, `{"n":1}`, "Sluice-Key: k")
	}
	k.event() // a, which is not acked

	o.sees("groups orders", "billing 2 1 1 max_inflight")
	o.sees("groups show orders billing", "lag 2, in flight 1")
	o.sees("groups members orders billing", "1 of 1", "max_inflight")
	o.sees("trace orders a", "billing in flight attempt 1")
	o.sees("trace orders b", "billing waiting")
	for _, line := range []string{
		"groups order", "groups show order billing", "trace order a", "dlq list order", "scheduled list order", "events order", "replay order",
		"export order -",
	} {
		o.refused(3, line, `did you mean "orders"`)
	}
	o.refused(3, "groups show orders bill", "not_found")
	o.refused(1, "groups delete orders billing --yes", "in_use")

	db.Stop()
	s.readyToSpool(t)
	o.sees("pub orders 3 --id c --key k", "spooled: durable, and not yet in the store")
	o.sees("status", "away", "spool 1 events")
	o.sees("status --ready", "spool")
	for _, line := range []string{"topics", "groups orders", "dlq list orders", "topics delete orders --yes", "trace orders a"} {
		o.refused(1, line, "store_unavailable")
	}

	db.Restart()
	o.sees("status", " ok", "spool 0 events")
	o.sees("events orders", " a key=k", " b key=k", " c key=k")

	k.ok(`{"op":"NACK","topic":"orders","group":"billing","id":"a","dead_letter":true,"reason":"no stock"}`)
	o.sees("dlq list orders", "a billing", `dead`, `"no stock"`)
	o.refused(2, "dlq discard orders --group billing", "--yes")
	o.sees("dlq redrive orders --group billing --dry-run", "1 would be redriven")
	o.sees("dlq redrive orders --group billing", "1 redriven")
	for range 3 { // a once more, b and c
		id := k.event().Text("event.id")
		k.ack("orders", "billing", id)
	}
	o.sees("groups orders", "billing 0 0 1 caught_up")
	testkit.Eventually(t, "the dead letter is gone", func() bool { return !strings.Contains(o.types(0, "dlq list orders"), "billing") })
	o.sees("groups seek orders billing --to earliest --dry-run", "3 events are replayed, 0 skipped")

	file := filepath.Join(t.TempDir(), "orders.ndjson")
	o.sees("export orders "+file, "exported 3 events")
	o.sees("pub orders 4 --id d", "d partition")
	o.sees("export --resume orders "+file, "exported 1 events", "behind the 3 that were there")
	o.refused(2, "events delete orders --key k", "--yes")
	o.sees("events delete orders --key k --yes", "3 erased")
	o.sees("events orders", " d ")
	if shown := o.types(0, "replay orders"); strings.Contains(shown, "key=k") {
		t.Errorf("erased, and there: %s", shown)
	}
}
