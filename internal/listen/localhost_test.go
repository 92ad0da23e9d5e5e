package listen_test

import (
	"errors"
	"net"
	"testing"

	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/test/require"
)

// localhost is both loopback addresses, with one port.
func TestLocalhost(t *testing.T) {
	ln, err := listen.On(t.Context(), "localhost:0")
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(listen.Address(ln))
	hosts := []string{"127.0.0.1"}
	if probe, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		probe.Close()
		hosts = append(hosts, "::1")
	}
	for _, host := range hosts {
		c := dial(t, net.JoinHostPort(host, port))
		accepted, err := ln.Accept()
		require.NoError(t, err)
		if accepted.RemoteAddr().String() != c.LocalAddr().String() {
			t.Errorf("%v is accepted, not %v", accepted.RemoteAddr(), c.LocalAddr())
		}
		accepted.Close()
	}
	_, err = listen.On(t.Context(), "localhost:"+port)
	wantError(t, err, "another process listens there")
	dial(t, net.JoinHostPort("127.0.0.1", port)) // one that nobody accepts does not hold up the end
	require.NoError(t, ln.Close())
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

func TestIPv6WithoutBrackets(t *testing.T) {
	if !listen.IsLoopback("::1:7070") || listen.IsLoopback("2001:db8::1:7070") {
		t.Error("::1 without brackets is not understood")
	}
	ln, err := listen.On(t.Context(), "::1:0")
	if err != nil {
		t.Skip("this machine has no IPv6")
	}
	defer ln.Close()
	reach(t, "tcp", listen.Address(ln))
}
