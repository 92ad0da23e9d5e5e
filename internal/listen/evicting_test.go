package listen_test

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/test/require"
)

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

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

// TestKeep: a connection that is kept makes no room for others, and what it took is given back when it is closed, once.
func TestKeep(t *testing.T) {
	ln, err := listen.On(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	e := listen.NewEvicting(ln, 3, 1)
	evicted := 0
	e.OnEvict = func() { evicted++ }
	taken := 0
	keep := func(refusal error) (net.Conn, error) {
		dial(t, listen.Address(e))
		c, err := e.Accept()
		require.NoError(t, err)
		return c, listen.Keep(c.LocalAddr(), func() error {
			if refusal == nil {
				taken++
			}
			return refusal
		}, func() { taken-- })
	}
	first, err := keep(nil)
	require.NoError(t, err)
	second, err := keep(nil)
	require.NoError(t, err)
	if _, err := keep(nil); err != listen.ErrFull || taken != 2 {
		t.Errorf("a third one is kept: %v, %d taken", err, taken)
	}
	refusal := errors.New("no")
	if _, err := keep(refusal); err != refusal || taken != 2 || evicted != 1 {
		t.Errorf("one that is refused: %v, %d taken, %d evicted", err, taken, evicted)
	}
	first.Close()
	first.Close()
	if taken != 1 {
		t.Errorf("%d are taken after one was closed", taken)
	}
	if err := listen.Keep(first.LocalAddr(), func() error { taken++; return nil }, func() { taken-- }); err == nil || taken != 1 {
		t.Errorf("one that is closed is kept: %v, %d taken", err, taken)
	}
	if err := listen.Keep(ln.Addr(), nil, nil); err != nil {
		t.Errorf("one of another listener: %v", err)
	}
	second.Close()
	if taken != 0 {
		t.Errorf("%d are taken in the end", taken)
	}
}

// room is a Memory of so many bytes.
type room struct{ left atomic.Int64 }

func (r *room) TryTake(n int) error {
	if r.left.Add(int64(-n)) < 0 {
		r.Give(n)
		return errors.New("no room")
	}
	return nil
}

func (r *room) Give(n int) { r.left.Add(int64(n)) }

// TestHeads: what clients send of requests that have not begun is counted but for the first 4 KiB of each, and given back once
// they begin or their connections are closed. A connection for which there is no room ends, and no other.
func TestHeads(t *testing.T) {
	const kib, most = 1 << 10, 100 << 10
	ln, err := listen.On(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	heads, evicted := new(room), 0
	heads.Give(most)
	e := listen.NewEvicting(ln, 10, 1)
	e.Heads, e.OnEvict = heads, func() { evicted++ }
	left := func(want int64) {
		t.Helper()
		if n := heads.left.Load(); n != want {
			t.Errorf("%d bytes are left; want %d", n, want)
		}
	}
	connect := func() (client, server net.Conn) {
		client = dial(t, listen.Address(e))
		server, err := e.Accept()
		require.NoError(t, err)
		return client, server
	}
	send := func(client, server net.Conn, n int) error {
		_, err := client.Write(make([]byte, n))
		require.NoError(t, err)
		_, err = io.ReadFull(server, make([]byte, n))
		return err
	}
	client, first := connect()
	require.NoError(t, send(client, first, 4*kib))
	left(most)
	require.NoError(t, send(client, first, 60*kib))
	left(most - 60*kib)
	otherClient, other := connect()
	if err := send(otherClient, other, 60*kib); err == nil || evicted != 1 || e.Evicted() != 1 {
		t.Errorf("beyond the room: %v, %d evicted, %d counted", err, evicted, e.Evicted())
	}
	other.Close()
	other.Close()
	smallClient, small := connect()
	require.NoError(t, send(smallClient, small, 4*kib))
	left(most - 60*kib)
	listen.Begin(first.LocalAddr())
	left(most)
	require.NoError(t, send(client, first, 200*kib)) // a body
	left(most)
	listen.End(first.LocalAddr())
	require.NoError(t, send(client, first, 5*kib))
	left(most - kib)
	first.Close()
	left(most)
	listen.Begin(ln.Addr()) // of another listener
	listen.End(ln.Addr())
}
