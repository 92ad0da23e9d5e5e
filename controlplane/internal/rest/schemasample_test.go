package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/forward"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// replays is a sidecar that replays events.
type replays struct {
	status int
	body   string
}

func (f replays) Serve(w http.ResponseWriter, r *http.Request, what forward.Request) error {
	if want := "/replay?limit=200&order=desc&topic=orders"; what.URL.RequestURI() != want || what.Store != "s" || r.Method != http.MethodGet {
		return fmt.Errorf("asked %s %s of %s", r.Method, what.URL.RequestURI(), what.Store)
	}
	w.WriteHeader(f.status)
	_, err := w.Write([]byte(f.body))
	return err
}

func TestASchemaIsComparedWithStoredEvents(t *testing.T) {
	const path = "/v1/policies/orders/schemas/check"
	ask := func(f replays, events string) (*api, string) {
		a := newAPI(t, func(c *Config) { c.Access, c.Forward = tokens{}, f })
		a.send("PUT", "/v1/policies/orders", `{"schema":{"json_schema":{"type":"object"}}}`, "Authorization", "Bearer editor")
		return a, `{"json_schema":{"type":"object","required":["n"]},"compatibility":"none","events":` + events + `}`
	}
	good := replays{200, `{"events":[{"id":"a","payload":{"n":1}},{"id":"b","payload":{"m":1}},{"id":"c","payload_base64":"AA=="}]}`}
	const of = `{"store":"s","topic":"orders"}`
	a, body := ask(good, of)
	want(t, a.send("POST", path, body, "Authorization", "Bearer reader"), http.StatusOK,
		`{"compatible":true,"reasons":[],"events":{"checked":3,"refused":2,`+
			`"examples":[{"id":"b","pointer":"","reason":"is refused: missing property 'n'"},{"id":"c","pointer":"","reason":"is not JSON"}]}}`)
	refused(t, a.send("POST", path, body, "Authorization", "Bearer viewer"), wire.Forbidden)
	for _, bad := range []string{`{}`, `{"store":"s"}`, `{"store":"s","topic":7}`, `{"store":"s","topic":"orders","n":1}`, `[]`} {
		_, body := ask(good, bad)
		refused(t, a.send("POST", path, body, "Authorization", "Bearer reader"), wire.BadRequest)
	}
	for text, code := range map[string]wire.Code{`{"error":"no","code":"forbidden"}`: wire.Forbidden, `<html>`: wire.PartialFleet} {
		a, body := ask(replays{403, text}, of)
		refused(t, a.send("POST", path, body, "Authorization", "Bearer reader"), code)
	}
	a, body = ask(replays{200, strings.Repeat(" ", maxSampleBytes+1)}, of)
	refused(t, a.send("POST", path, body, "Authorization", "Bearer reader"), wire.PayloadTooLarge)
}
