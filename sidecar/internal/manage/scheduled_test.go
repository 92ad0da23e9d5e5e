package manage_test

import (
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

// An event that the spool would bring back cannot be cancelled, even if the store has it, too.
func TestCancelOfWhatIsSpooled(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	if res, body := s.Do(t, "POST", "/v1/topics/t/events", "1", "Sluice-Id: spooled", "Sluice-Delay-Ms: 3600000"); res.StatusCode != 202 {
		t.Fatalf("%s %s", res.Status, body)
	}
	if res, body := s.Do(t, "DELETE", "/v1/topics/t/scheduled/spooled", ""); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("%s %s", res.Status, body)
	}
	if list, err := s.Log.ListScheduled(t.Context(), "t", nil, 10); err != nil || len(list) != 1 {
		t.Errorf("scheduled: %v, %v", list, err)
	}
}

// An identity that may neither publish nor subscribe to a topic sees none of its scheduled events,
// and cancels none.
func TestScheduledRights(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition,
		Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("pub", `publish: ["t"]`)+
			gatewaytest.Entry("sub", `subscribe: ["t"]`)+gatewaytest.Entry("else", `publish: ["u"], subscribe: ["u"], admin: ["u"]`)).Access})
	as := func(token string) string { return "Authorization: Bearer " + token }
	list, one := "/v1/topics/t/scheduled", "/v1/topics/t/scheduled/a"
	for _, c := range []struct {
		token, method, path string
		want                int
	}{
		{"sub", "POST", "/v1/topics/t/events", 403}, {"else", "POST", "/v1/topics/t/events", 403}, {"pub", "POST", "/v1/topics/t/events", 202},
		{"no", "GET", list, 401}, {"else", "GET", list, 403}, {"pub", "GET", list, 403}, {"sub", "GET", list, 200},
		{"no", "DELETE", one, 401}, {"else", "DELETE", one, 403}, {"sub", "DELETE", one, 403}, {"pub", "DELETE", one, 204},
	} {
		headers, payload := []string{as(c.token)}, ""
		if c.method == "POST" {
			payload = "1"
			headers = append(headers, "Sluice-Id: a", "Sluice-Delay-Ms: 3600000")
		}
		if res, body := s.Do(t, c.method, c.path, payload, headers...); res.StatusCode != c.want {
			t.Errorf("%s: %s %s: %s %s; want %d", c.token, c.method, c.path, res.Status, body, c.want)
		}
	}
}
