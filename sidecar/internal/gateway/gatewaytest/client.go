package gatewaytest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// Frame is a decoded frame from the sidecar.
type Frame struct {
	Op, Corr, Code, Msg, Topic, Group string
	RetryAfterMS                      *int64 `json:"retry_after_ms"`
	ID                                string
	Partition                         *int
	Seq                               uint64
	Duplicate                         bool
	Durability                        string
	Results                           []Frame
	Partitions                        []int
	Positions                         map[string]uint64
	Event                             Event
	Ctx                               Delivery
	Events                            []struct {
		Event Event
		Ctx   Delivery
	}
}

type Event struct {
	ID, Topic, Key string
	TS             int64
	Seq            uint64
	Headers        map[string]string
	Payload        json.RawMessage
	PayloadBase64  *string `json:"payload_base64"`
}

type Delivery struct {
	Attempt       int
	AckDeadlineMS int64 `json:"ack_deadline_ms"`
}

// Client is a WebSocket client as an application would write it.
type Client struct {
	T  testing.TB
	WS *websocket.Conn
}

func (s *Sidecar) Dial(t testing.TB) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+s.Addr+"/ws", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: DialTight}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	c := &Client{t, ws}
	t.Cleanup(func() { ws.CloseNow() })
	return c
}

// DialAs connects with the token in the request.
func (s *Sidecar) DialAs(t testing.TB, token string) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+s.Addr+"/ws", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{}},
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.CloseNow() })
	return &Client{t, ws}
}

func (c *Client) Send(format string, args ...any) {
	c.T.Helper()
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	if err := c.Write(websocket.MessageText, []byte(text)); err != nil {
		c.T.Fatalf("send %.100s: %v", text, err)
	}
}

func (c *Client) Write(kind websocket.MessageType, text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return c.WS.Write(ctx, kind, text)
}

// Next reads the next frame.
func (c *Client) Next() Frame {
	c.T.Helper()
	f, err := c.Read()
	if err != nil {
		c.T.Fatal(err)
	}
	return f
}

func (c *Client) Read() (Frame, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	_, text, err := c.WS.Read(ctx)
	if err != nil {
		return Frame{}, err
	}
	var f Frame
	if err := json.Unmarshal(text, &f); err != nil {
		return Frame{}, fmt.Errorf("%s: %w", text, err)
	}
	return f, nil
}

// Want reads the next frame, which must have the op (and, where it is ERR, the code after a slash).
func (c *Client) Want(op string) Frame {
	c.T.Helper()
	f := c.Next()
	if got := strings.TrimSuffix(f.Op+"/"+f.Code, "/"); got != op {
		c.T.Fatalf("got %s (%s), want %s", got, f.Msg, op)
	}
	return f
}

// Ask sends an op and wants OK next.
func (c *Client) Ask(format string, args ...any) Frame {
	c.T.Helper()
	c.Send(format, args...)
	return c.Want("OK")
}

// WantEvent reads the next frame, which must be the EVENT with the id.
func (c *Client) WantEvent(id string) Frame {
	c.T.Helper()
	f := c.Want("EVENT")
	if f.Event.ID != id {
		c.T.Fatalf("got event %s, want %s", f.Event.ID, id)
	}
	return f
}

// Alive checks that the connection is usable, and that the client was sent nothing else.
func (c *Client) Alive() {
	c.T.Helper()
	c.Send(`{"op":"PING","corr":"alive?"}`)
	if f := c.Want("OK"); f.Corr != "alive?" {
		c.T.Fatalf("got a reply to %q", f.Corr)
	}
}
