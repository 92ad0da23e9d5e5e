package gatewaytest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Pulled is the answer to a pull.
type Pulled struct {
	Events []struct {
		Event Event
		Ctx   struct {
			Delivery
			Lease string
		}
	}
}

// Result is one of the answers to an ack, a nack or a modack.
type Result struct {
	OK          bool
	Code, Error string
}

// GroupPath is the path of a verb for the group "g" of the topic "t".
func GroupPath(verb string) string { return "/v1/topics/t/groups/g/" + verb }

// Pull pulls from the group "g" of the topic "t".
func (s *Sidecar) Pull(t testing.TB, format string, args ...any) Pulled {
	t.Helper()
	res, body := s.Do(t, "POST", GroupPath("pull"), fmt.Sprintf(format, args...))
	var p Pulled
	if err := json.Unmarshal([]byte(body), &p); err != nil || res.StatusCode != 200 || p.Events == nil {
		t.Fatalf("pull: %s %s", res.Status, body)
	}
	return p
}

// Names are the ids and attempts of the pulled events.
func (p Pulled) Names() string {
	var out []string
	for _, e := range p.Events {
		out = append(out, fmt.Sprint(e.Event.ID, "/", e.Ctx.Attempt))
	}
	return strings.Join(out, " ")
}

// Leases are the leases of the pulled events.
func (p Pulled) Leases() (out []string) {
	for _, e := range p.Events {
		out = append(out, e.Ctx.Lease)
	}
	return out
}

// Wants checks the pulled events.
func (p Pulled) Wants(t testing.TB, want string) Pulled {
	t.Helper()
	if got := p.Names(); got != want {
		t.Fatalf("pulled %q, want %q", got, want)
	}
	return p
}

// Settle acks, nacks or modacks; more are further members.
func (s *Sidecar) Settle(t testing.TB, verb string, leases []string, more ...string) string {
	t.Helper()
	list, err := json.Marshal(leases)
	if err != nil {
		t.Fatal(err)
	}
	res, body := s.Do(t, "POST", GroupPath(verb), `{"leases":`+strings.Join(append([]string{string(list)}, more...), ",")+`}`)
	var got struct{ Results []Result }
	if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != 200 || len(got.Results) != len(leases) {
		t.Fatalf("%s: %s %s", verb, res.Status, body)
	}
	var out []string
	for _, r := range got.Results {
		if r.OK {
			out = append(out, "ok")
		} else if r.Error == "" {
			t.Errorf("%s: %s", verb, body)
		} else {
			out = append(out, r.Code)
		}
	}
	return strings.Join(out, " ")
}

// OnePartition makes pulls return events in the order of publishing.
const OnePartition = `[{"name":"*","partitions":1,"publish":{"rate":0},"connection":{"rate":0},` +
	`"delivery":{"backoff":{"min":"1ms","max":"1ms"}}}]`
