package ws_test

import (
	"context"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// A client that answers pings keeps its connection; one that does not is disconnected.
func TestPings(t *testing.T) {
	bounds := session.DefaultBounds()
	bounds.PingAfter = 10 * time.Millisecond
	s := start(t, gatewaytest.Setup{Bounds: &bounds})
	ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.Patience)
	defer cancel()
	pinged := make(chan bool)
	dial := func(answer bool) <-chan error {
		ws, _, err := websocket.Dial(ctx, "ws://"+s.Addr+"/ws", &websocket.DialOptions{
			OnPingReceived: func(context.Context, []byte) bool {
				if answer {
					pinged <- true
				}
				return answer
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ws.CloseNow() })
		ended := make(chan error, 1)
		go func() {
			_, _, err := ws.Read(ctx)
			ended <- err
		}()
		return ended
	}
	if err := <-dial(false); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("a client that answers no pings: %v", err)
	}
	ended := dial(true)
	for range 5 {
		select {
		case <-pinged:
		case err := <-ended:
			t.Fatalf("a client that answers pings was disconnected: %v", err)
		}
	}
	cancel()
	<-ended
}
