package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/sidecartest"
)

// patience bounds every wait for something that must happen, on a slow machine
// too.
const patience = time.Minute

// instant is how long a test listens for something that must not happen, where
// nothing observable marks the moment after which it cannot.
const instant = 150 * time.Millisecond

// object is a JSON object whose numbers are json.Number.
type object map[string]any

func parse(t testing.TB, text []byte) object {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
		t.Fatalf("not a JSON object: %v\n%.500s", err, text)
	}
	return o
}

// at walks a path of members, as in "event.headers.a"; what is not there is nil.
func (o object) at(path string) any {
	var v any = map[string]any(o)
	for name := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// text is a member as it prints: "" where there is none.
func (o object) text(path string) string {
	v := o.at(path)
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

func (o object) number(t testing.TB, path string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(o.text(path), 10, 64)
	if err != nil {
		t.Fatalf("%s is not a whole number in %v", path, o)
	}
	return n
}

func (o object) list(path string) []object {
	items, _ := o.at(path).([]any)
	var out []object
	for _, i := range items {
		m, _ := i.(map[string]any)
		out = append(out, m)
	}
	return out
}

// server is a running sidecar.
type server struct{ *sidecartest.Process }

// own starts a sidecar for one test, with its policies ("" = none).
func own(t testing.TB, policies string, args ...string) *server {
	t.Helper()
	return newHome(t).start(t, policies, args...)
}

func write(t testing.TB, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// answer is an HTTP response, read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) json(t testing.TB) object { t.Helper(); return parse(t, a.body) }

// call sends a request; headers are "Name: value".
func call(t testing.TB, method, url, body string, headers ...string) answer {
	t.Helper()
	return callWith(t, http.DefaultClient, method, url, body, headers...)
}

func callWith(t testing.TB, client *http.Client, method, url, body string, headers ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		} else {
			req.Header.Add(name, value)
		}
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, b}
}

func (s *server) post(t testing.TB, topic, body string, headers ...string) answer {
	t.Helper()
	return call(t, "POST", s.URL()+"/v1/topics/"+topic+"/events", body, headers...)
}

// put publishes one event with an id and fails the test where that fails.
func (s *server) put(t testing.TB, topic, id, payload string, headers ...string) object {
	t.Helper()
	a := s.post(t, topic, payload, append([]string{"Sluice-Id: " + id}, headers...)...)
	if a.status != 201 {
		t.Fatalf("publishing %s to %s: %d %s", id, topic, a.status, a.body)
	}
	return a.json(t)
}

// replay asks for a page with a query such as "topic=a&limit=2".
func (s *server) replay(t testing.TB, query string) object {
	t.Helper()
	a := call(t, "GET", s.ReplayURL()+"/replay?"+query, "")
	if a.status != 200 {
		t.Fatalf("replay %s: %d %s", query, a.status, a.body)
	}
	return a.json(t)
}

func (s *server) group(t testing.TB, topic, group string) object {
	t.Helper()
	return call(t, "GET", s.URL()+"/v1/topics/"+topic+"/groups/"+group, "").json(t)
}

// eventually asks until it holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

func ids(events []object) []string {
	var out []string
	for _, e := range events {
		if e["event"] != nil {
			e = e["event"].(map[string]any)
		}
		out = append(out, e.text("id"))
	}
	return out
}
