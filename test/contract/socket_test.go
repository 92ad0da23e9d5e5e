package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// asSent is the member under which a frame's own text is kept.
const asSent = "(as sent)"

type frameText []byte

func (frameText) String() string { return "…" } // an object prints its members already

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
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+s.Listen+"/ws", nil)
	require.NoError(t, err)
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
			f[asSent] = frameText(b)
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
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
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
	return k.await("the reply "+corr, func(f object) bool { return f.Text("corr") == corr })
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
	if r["op"] != "ERR" || r["code"] != code || r.Text("msg") == "" {
		k.t.Errorf("want %s for %.200s: %.300v", code, format, r)
	}
	return r
}

// await is the first frame that fits, kept or to come; others are kept.
func (k *socket) await(what string, fits func(object) bool) object {
	k.t.Helper()
	f := k.within(testkit.Patience, fits)
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

// rawSocket is a connection that never reads.
type rawSocket struct {
	t    testing.TB
	conn *websocket.Conn
}

func (s *server) rawDial(t testing.TB) rawSocket {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "ws://"+s.Listen+"/ws", nil)
	require.NoError(t, err)
	t.Cleanup(func() { conn.CloseNow() })
	return rawSocket{t, conn}
}

func (r rawSocket) write(frame string) {
	r.t.Helper()
	if err := r.conn.Write(r.t.Context(), websocket.MessageText, []byte(frame)); err != nil {
		r.t.Fatal(err)
	}
}
