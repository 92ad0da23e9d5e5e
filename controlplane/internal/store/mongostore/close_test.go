package mongostore

import (
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// A server that has fallen silent does not hold up a stop.
func TestCloseWhileTheServerIsSilent(t *testing.T) {
	server := mongotest.Shared(t)
	proxy := faultproxy.New(t, server.Addr())
	s, err := Open(Options{URL: server.URIVia(proxy.Addr(), server.NewDatabase(t)), Timeout: patience})
	require.NoError(t, err)
	require.NoError(t, s.Put(t.Context(), "me", []byte("x")))
	proxy.Pause(faultproxy.ToClient)
	proxy.Pause(faultproxy.ToServer)
	began := time.Now()
	_ = s.Close() // it may say that the server was not told
	if took := time.Since(began); took > closeTimeout+30*time.Second {
		t.Errorf("it took %v to close", took)
	}
}
