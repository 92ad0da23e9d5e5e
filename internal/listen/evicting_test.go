package listen_test

import (
	"net"
	"testing"

	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/test/require"
)

// TestEvicting: one more connection closes the one that is idle for the longest time, never one that
// is held, and so many stay that no client can hold them.
func TestEvicting(t *testing.T) {
	ln, err := listen.On(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	e := listen.NewEvicting(ln, 3, 1)
	var clients []net.Conn
	next := func() net.Conn {
		clients = append(clients, dial(t, listen.Address(e)))
		c, err := e.Accept()
		require.NoError(t, err)
		return c
	}
	ends := func(i int) { // nothing is written to the clients
		t.Helper()
		if _, err := clients[i].Read(make([]byte, 1)); err == nil {
			t.Errorf("connection %d is not closed", i)
		}
	}
	hold := func(c net.Conn, want bool) func() {
		t.Helper()
		release, ok := listen.Hold(c.LocalAddr())
		if ok != want {
			t.Fatalf("hold: %v, want %v", ok, want)
		}
		return release
	}
	first, second := next(), next()
	release := hold(first, true)
	hold(first, true)() // an other request on it
	third := next()
	next()
	ends(1)
	hold(second, false) // it is closed
	hold(third, true)
	next()
	ends(3)
	release()
	next()
	ends(4) // idle for longer than the first
	next()
	ends(0)
	third.Close()
	third.Close() // counts once
	next()
	next()
	ends(5)
	if n := e.Evicted(); n != 5 {
		t.Errorf("%d were evicted; want 5", n)
	}
	if release, ok := listen.Hold(ln.Addr()); !ok {
		t.Error("a connection of another listener cannot be held")
	} else {
		release()
	}
}

// TestEvictingReserve: the reserve is never held.
func TestEvictingReserve(t *testing.T) {
	ln, err := listen.On(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	e := listen.NewEvicting(ln, 4, 2)
	for i := range 4 {
		dial(t, listen.Address(e))
		c, err := e.Accept()
		require.NoError(t, err)
		if _, ok := listen.Hold(c.LocalAddr()); ok != (i < 2) {
			t.Errorf("connection %d is held: %v", i, ok)
		}
	}
}
