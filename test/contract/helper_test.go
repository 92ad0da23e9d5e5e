package contract

import (
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/testkit"
)

// instant is how long a test waits for something that must not happen, if no event marks the moment
// after which it cannot.
const instant = 150 * time.Millisecond

// object is a JSON object whose numbers are json.Number.
type object = testkit.Object

// server is a running sidecar.
type server struct{ *testkit.Sidecar }

// own starts a sidecar for one test, with its policies ("" = none).
func own(t testing.TB, policies string, args ...string) *server {
	t.Helper()
	return newHome(t).start(t, policies, args...)
}

func (s *server) post(t testing.TB, topic, body string, headers ...string) testkit.Answer {
	t.Helper()
	return testkit.Call(t, "POST", s.URL()+"/v1/topics/"+topic+"/events", body, headers...)
}

// put publishes one event with an id, and fails the test if that fails.
func (s *server) put(t testing.TB, topic, id, payload string, headers ...string) object {
	t.Helper()
	a := s.post(t, topic, payload, append([]string{"Sluice-Id: " + id}, headers...)...)
	if a.Status != 201 {
		t.Fatalf("publishing %s to %s: %d %s", id, topic, a.Status, a.Body)
	}
	return a.JSON(t)
}

// replay asks for a page with a query such as "topic=a&limit=2".
func (s *server) replay(t testing.TB, query string) object {
	t.Helper()
	a := testkit.Call(t, "GET", s.ReplayURL()+"/replay?"+query, "")
	if a.Status != 200 {
		t.Fatalf("replay %s: %d %s", query, a.Status, a.Body)
	}
	return a.JSON(t)
}

func (s *server) group(t testing.TB, topic, group string) object {
	t.Helper()
	return testkit.Call(t, "GET", s.URL()+"/v1/topics/"+topic+"/groups/"+group, "").JSON(t)
}

func ids(events []object) []string {
	var out []string
	for _, e := range events {
		if e["event"] != nil {
			e = e["event"].(map[string]any)
		}
		out = append(out, e.Text("id"))
	}
	return out
}
