package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/internal/sidecartest"
)

// patience bounds every wait for something that must happen.
const patience = 15 * time.Second

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
	dir := t.TempDir()
	if policies != "" {
		args = append(args, "--policies", write(t, filepath.Join(dir, "policies.yaml"), policies))
	}
	return &server{sidecartest.Start(t, filepath.Join(dir, "data"), args...)}
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

// asSent is the member under which a frame's own text is kept.
const asSent = "(as sent)"

// socket is one WebSocket connection. One goroutine of the test uses it.
type socket struct {
	t       testing.TB
	conn    *websocket.Conn
	frames  chan object // closed after closing is set
	kept    []object    // read while looking for something else
	closing error
	corr    int
}

func (s *server) dial(t testing.TB) *socket {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+s.Listen+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	k := &socket{t: t, conn: conn, frames: make(chan object, 20000)}
	go func() {
		defer close(k.frames)
		for {
			_, b, err := conn.Read(context.Background())
			if err != nil {
				k.closing = err
				return
			}
			f := object{}
			d := json.NewDecoder(bytes.NewReader(b))
			d.UseNumber()
			if err := d.Decode(&f); err != nil {
				k.closing = fmt.Errorf("a frame that is not JSON: %w: %.200s", err, b)
				return
			}
			f[asSent] = b
			k.frames <- f
		}
	}()
	t.Cleanup(k.drop)
	return k
}

// drop ends the connection without a word, as a killed client does.
func (k *socket) drop() {
	k.conn.CloseNow()
	for range k.frames {
	}
}

// raw sends a frame as it is.
func (k *socket) raw(frame string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := k.conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
		k.t.Fatalf("writing a frame: %v", err)
	}
}

// ask sends a request with a corr of its own and waits for the reply.
func (k *socket) ask(format string, args ...any) object {
	k.t.Helper()
	return k.reply(k.send(format, args...))
}

// send sends a request with a corr of its own, which it returns.
func (k *socket) send(format string, args ...any) string {
	k.t.Helper()
	k.corr++
	corr := "c" + strconv.Itoa(k.corr)
	frame := format
	if len(args) > 0 {
		frame = fmt.Sprintf(format, args...)
	}
	k.raw(`{"corr":"` + corr + `",` + strings.TrimPrefix(frame, "{"))
	return corr
}

func (k *socket) reply(corr string) object {
	k.t.Helper()
	return k.await("the reply "+corr, func(f object) bool { return f.text("corr") == corr })
}

// ok asks and fails the test unless the reply is OK.
func (k *socket) ok(format string, args ...any) object {
	k.t.Helper()
	r := k.ask(format, args...)
	if r["op"] != "OK" {
		k.t.Fatalf("%.200s: %v", fmt.Sprintf(format, args...), r)
	}
	return r
}

// refused asks and fails the test unless the reply is an ERR with the code.
func (k *socket) refused(code, format string, args ...any) object {
	k.t.Helper()
	r := k.ask(format, args...)
	if r["op"] != "ERR" || r["code"] != code || r.text("msg") == "" {
		k.t.Errorf("want %s for %.200s: %.300v", code, format, r)
	}
	return r
}

// await is the first frame that fits, kept or to come; others are kept.
func (k *socket) await(what string, fits func(object) bool) object {
	k.t.Helper()
	f := k.within(patience, fits)
	if f == nil {
		k.t.Fatalf("no frame that is %s (closed: %v); kept: %.800v", what, k.closing, k.kept)
	}
	return f
}

func (k *socket) within(d time.Duration, fits func(object) bool) object {
	for i, f := range k.kept {
		if fits(f) {
			k.kept = append(k.kept[:i:i], k.kept[i+1:]...)
			return f
		}
	}
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	for {
		select {
		case f, ok := <-k.frames:
			if !ok {
				return nil
			}
			if fits(f) {
				return f
			}
			k.kept = append(k.kept, f)
		case <-timeout.C:
			return nil
		}
	}
}

func isEvent(f object) bool { return f["op"] == "EVENT" }

// event is the next EVENT.
func (k *socket) event() object {
	k.t.Helper()
	return k.await("an EVENT", isEvent)
}

// events are the next n EVENTs, in order.
func (k *socket) events(n int) []object {
	k.t.Helper()
	var out []object
	for range n {
		out = append(out, k.event())
	}
	return out
}

// silent fails the test where an EVENT comes within an instant.
func (k *socket) silent(why string) {
	k.t.Helper()
	if f := k.within(instant, isEvent); f != nil {
		k.t.Errorf("an EVENT although %s: %v", why, f)
	}
}

// usable fails the test unless the connection still answers.
func (k *socket) usable() {
	k.t.Helper()
	k.ok(`{"op":"PING"}`)
}

func (k *socket) ack(topic, group, id string) {
	k.t.Helper()
	k.ok(`{"op":"ACK","topic":%q,"group":%q,"id":%q}`, topic, group, id)
}
