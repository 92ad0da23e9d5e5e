package forward_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

// BenchmarkAnswer compares a page of a hundred events, and a stream, of a sidecar with the same through
// the control plane.
func BenchmarkAnswer(b *testing.B) {
	for name, size := range map[string]int{"page": 30_000, "stream": 64 << 20} {
		sidecar := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for rest, part := size, make([]byte, 64<<10); rest > 0; rest -= len(part) {
				_, _ = w.Write(part[:min(rest, len(part))])
			}
		})
		direct := httptest.NewServer(sidecar)
		b.Cleanup(direct.Close)
		p, forwarded := start(b)
		p.Serve(b, "node", sidecar)
		p.Await(b, 1)
		for way, at := range map[string]string{"direct": direct.URL, "forwarded": forwarded} {
			b.Run(name+"/"+way, func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					answer, err := http.Get(at)
					require.NoError(b, err)
					_, err = io.Copy(io.Discard, answer.Body)
					require.NoError(b, err)
					answer.Body.Close()
				}
			})
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}
}
