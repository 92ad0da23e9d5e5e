package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// frame is a decoded frame from the sidecar.
type frame struct {
	Op, Corr, Code, Msg, Topic, Group string
	RetryAfterMS                      *int64 `json:"retry_after_ms"`
	ID                                string
	Partition                         *int
	Seq                               uint64
	Duplicate                         bool
	Durability                        string
	Results                           []frame
	Partitions                        []int
	Positions                         map[string]uint64
	Event                             event
	Ctx                               delivery
	Events                            []struct {
		Event event
		Ctx   delivery
	}
}

type event struct {
	ID, Topic, Key string
	TS             int64
	Seq            uint64
	Headers        map[string]string
	Payload        json.RawMessage
	PayloadBase64  *string `json:"payload_base64"`
}

type delivery struct {
	Attempt       int
	AckDeadlineMS int64 `json:"ack_deadline_ms"`
}

// client is a WebSocket client as an application would write it.
type client struct {
	t  testing.TB
	ws *websocket.Conn
}

func (s *sidecar) dial(t testing.TB) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+s.addr+"/ws", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dialTight}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	c := &client{t, ws}
	t.Cleanup(func() { ws.CloseNow() })
	return c
}

func (c *client) send(format string, args ...any) {
	c.t.Helper()
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	if err := c.write(websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatalf("send %.100s: %v", text, err)
	}
}

func (c *client) write(kind websocket.MessageType, text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.ws.Write(ctx, kind, text)
}

// next reads the next frame.
func (c *client) next() frame {
	c.t.Helper()
	f, err := c.read()
	if err != nil {
		c.t.Fatal(err)
	}
	return f
}

func (c *client) read() (frame, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, text, err := c.ws.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	var f frame
	if err := json.Unmarshal(text, &f); err != nil {
		return frame{}, fmt.Errorf("%s: %w", text, err)
	}
	return f, nil
}

// want reads the next frame, which must have the op (and, where it is ERR, the code after a slash).
func (c *client) want(op string) frame {
	c.t.Helper()
	f := c.next()
	if got := strings.TrimSuffix(f.Op+"/"+f.Code, "/"); got != op {
		c.t.Fatalf("got %s (%s), want %s", got, f.Msg, op)
	}
	return f
}

// ask sends an op and wants OK next.
func (c *client) ask(format string, args ...any) frame {
	c.t.Helper()
	c.send(format, args...)
	return c.want("OK")
}

// wantEvent reads the next frame, which must be the EVENT with the id.
func (c *client) wantEvent(id string) frame {
	c.t.Helper()
	f := c.want("EVENT")
	if f.Event.ID != id {
		c.t.Fatalf("got event %s, want %s", f.Event.ID, id)
	}
	return f
}

// alive checks that the connection is usable, and that the client was sent nothing else.
func (c *client) alive() {
	c.t.Helper()
	c.send(`{"op":"PING","corr":"alive?"}`)
	if f := c.want("OK"); f.Corr != "alive?" {
		c.t.Fatalf("got a reply to %q", f.Corr)
	}
}
