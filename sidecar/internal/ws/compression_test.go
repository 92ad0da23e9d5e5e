package ws_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/test/require"
)

// counted counts the bytes that come.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// Large messages are compressed where the client asks for it, both ways.
func TestCompression(t *testing.T) {
	t.Parallel()
	s := gatewaytest.Start(t, gatewaytest.Setup{})
	var came atomic.Int64
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return counted{c, &came}, err
	}}
	c, res, err := websocket.Dial(t.Context(), "ws://"+s.Addr+"/ws", &websocket.DialOptions{
		CompressionMode: websocket.CompressionNoContextTakeover, HTTPClient: &http.Client{Transport: transport},
	})
	require.NoError(t, err)
	defer c.CloseNow()
	c.SetReadLimit(-1)
	if agreed := res.Header.Get("Sec-WebSocket-Extensions"); !strings.Contains(agreed, "server_no_context_takeover") {
		t.Errorf("agreed on %q", agreed)
	}
	ask := func(frame string) string {
		t.Helper()
		require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(frame)))
		_, text, err := c.Read(t.Context())
		require.NoError(t, err)
		return string(text)
	}
	payload := `"` + strings.Repeat("x", 200<<10) + `"`
	ask(fmt.Sprintf(`{"op":"PUBLISH","topic":"t","payload":%s}`, payload))
	ask(`{"op":"SUBSCRIBE","topic":"t","opts":{"from":"earliest"}}`)
	_, event, err := c.Read(t.Context())
	require.NoError(t, err)
	if !strings.Contains(string(event), payload) || came.Load() > 20<<10 {
		t.Errorf("%d bytes have come for %d", came.Load(), len(event))
	}
}
