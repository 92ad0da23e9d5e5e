package gateway_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

// Without a token that is valid, GET / has the program and its version alone.
func TestAbout(t *testing.T) {
	open := gatewaytest.Start(t, gatewaytest.Setup{})
	closed := gatewaytest.Start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", "")).Access})
	for _, c := range []struct {
		of      *gatewaytest.Sidecar
		headers []string
		known   bool
	}{
		{open, nil, true}, {closed, nil, false}, {closed, []string{"Authorization: Bearer other"}, false},
		{closed, []string{"Authorization: Bearer app"}, true},
	} {
		res, text := c.of.Do(t, "GET", "/?any=1", "", append(c.headers, "Sluice-Any: 1")...)
		var body struct {
			Program, Version string
			NodeID           string `json:"node_id"`
			Routes           []string
		}
		if err := json.Unmarshal([]byte(text), &body); err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("%v: %s %s", c.headers, res.Status, text)
			continue
		}
		routes := slices.Contains(body.Routes, "GET /v1/topics") && slices.Contains(body.Routes, "GET /")
		if body.Program != "sluice-sidecar" || body.Version != "test" || (body.NodeID == "node") != c.known || routes != c.known {
			t.Errorf("%v: %s", c.headers, text)
		}
	}
}

// Clients of Dapr ask these before they publish.
func TestDaprState(t *testing.T) {
	auth := gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", "")).Access
	for unready, status := range map[bool]int{false: 204, true: 500} {
		s := gatewaytest.Start(t, gatewaytest.Setup{Unready: unready, Access: auth})
		for _, path := range []string{"/v1.0/healthz", "/v1.0/healthz/outbound?appid=a"} {
			if res, text := s.Do(t, "GET", path, ""); res.StatusCode != status || text != "" {
				t.Errorf("%s: %s %s", path, res.Status, text)
			}
		}
		s.Want(t, 401, "unauthorized", "GET", "/v1.0/metadata", "")
		s.Want(t, 200, `"runtimeVersion":"test"`, "GET", "/v1.0/metadata", "", "Authorization: Bearer app")
		s.Want(t, 200, `"runtimeVersion":"test"`, "GET", "/v1.0/metadata", "", "dapr-api-token: app")
		s.Want(t, 401, `"errorCode":"UNAUTHORIZED"`, "GET", "/v1.0/metadata", "", "dapr-api-token: other")
	}
}
