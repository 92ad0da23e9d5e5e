package ws_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/test/require"
)

// BenchmarkPublishWebSocket measures a whole publish: from a client's frame through the gateway,
// admission, the writer and the embedded log (in memory) to the client's OK. It publishes one at a
// time, and with 64 under way on a connection.
func BenchmarkPublishWebSocket(b *testing.B) {
	for _, size := range []int{256, 16 << 10} {
		for _, window := range []int{1, 64} {
			b.Run(fmt.Sprintf("bytes=%d/underway=%d", size, window), func(b *testing.B) {
				s := start(b, gatewaytest.Setup{Budget: budget.New(budget.Bounds{Memory: 128 << 20, Places: budget.DefaultPlaces()})})
				c := s.Dial(b)
				frame := []byte(`{"op":"PUBLISH","corr":"1","topic":"t","payload":"` + strings.Repeat("x", size) + `"}`)
				ctx := context.Background()
				free := make(chan struct{}, window)
				replies := make(chan error, 1)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				go func() {
					for range b.N {
						_, text, err := c.WS.Read(ctx)
						if err == nil && !strings.Contains(string(text), `"OK"`) {
							err = fmt.Errorf("%s", text)
						}
						if err != nil {
							replies <- err
							return
						}
						<-free
					}
					replies <- nil
				}()
				for range b.N {
					select {
					case free <- struct{}{}:
					case err := <-replies:
						b.Fatal(err)
					}
					require.NoError(b, c.WS.Write(ctx, websocket.MessageText, frame))
				}
				require.NoError(b, <-replies)
			})
		}
	}
}
