package listen_test

import (
	"bufio"
	"io"
	"net"
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

// TestBound: those past the bound are told, and one that goes makes room.
func TestBound(t *testing.T) {
	ln, err := listen.On(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	bound := listen.NewBound(ln, 2, func(c net.Conn) { _, _ = io.WriteString(c, "full\n") })
	accepted := make(chan net.Conn)
	ended := make(chan error)
	go func() {
		for {
			c, err := bound.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	addr := listen.Address(bound)
	dial(t, addr)
	first := <-accepted
	dial(t, addr)
	<-accepted
	for range 3 {
		text, err := bufio.NewReader(dial(t, addr)).ReadString('\n')
		if err != nil || text != "full\n" {
			t.Fatalf("a third connection reads %q, %v", text, err)
		}
	}
	first.Close()
	first.Close() // counts once
	dial(t, addr)
	third := <-accepted
	text, err := bufio.NewReader(dial(t, addr)).ReadString('\n')
	if err != nil || text != "full\n" {
		t.Errorf("a fourth connection reads %q, %v", text, err)
	}
	third.Close()
	if err := bound.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("Accept goes on after Close")
	}
}
