package controlplane

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

func TestGate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	d := newGate(l)
	go func() {
		for {
			c, err := d.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	ask := func(c net.Conn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 1))
		return err
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	in := dial()
	require.NoError(t, ask(in))
	d.set(false)
	if ask(in) == nil || ask(dial()) == nil {
		t.Error("somebody is served behind a gate that is shut")
	}
	d.set(true)
	if err := ask(dial()); err != nil || errors.Is(ask(in), nil) {
		t.Errorf("served again: %v", err)
	}
}
