package listen_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/test/require"
)

func TestPortZeroPicksOne(t *testing.T) {
	listener, err := listen.On(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	address := listen.Address(listener)
	if !strings.HasPrefix(address, "127.0.0.1:") || strings.HasSuffix(address, ":0") {
		t.Errorf("address = %q, want the port really bound", address)
	}
	reach(t, "tcp", address)
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := listen.On(t.Context(), "unix:"+path)
	require.NoError(t, err)
	if got := listen.Address(listener); got != "unix:"+path {
		t.Errorf("address = %q", got)
	}
	reach(t, "unix", path)

	t.Run("in use", func(t *testing.T) {
		_, err := listen.On(t.Context(), "unix:"+path)
		wantError(t, err, "another process listens there")
		reach(t, "unix", path)
	})
	require.NoError(t, listener.Close())
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("closing left the socket: %v", err)
	}
}

func TestStaleUnixSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	killed.SetUnlinkOnClose(false) // as a process that was killed leaves it
	killed.Close()

	listener, err := listen.On(t.Context(), "unix:"+path)
	require.NoError(t, err)
	defer listener.Close()
	reach(t, "unix", path)
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	require.NoError(t, os.WriteFile(path, []byte("data"), 0o600))
	_, err := listen.On(t.Context(), "unix:"+path)
	wantError(t, err, "not a socket")
	if data, err := os.ReadFile(path); err != nil || string(data) != "data" {
		t.Errorf("the file was touched: %q, %v", data, err)
	}
}

func TestBadAddresses(t *testing.T) {
	for _, addr := range []string{
		"", "7070", "localhost", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1",
		"unix:", "unix:/" + strings.Repeat("x", 200),
	} {
		listener, err := listen.On(t.Context(), addr)
		if err == nil {
			listener.Close()
			t.Errorf("On(%q) succeeded", addr)
		} else if !strings.Contains(err.Error(), addr) {
			t.Errorf("On(%q): the error does not name the address: %v", addr, err)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:7070":          true,
		"127.8.9.10:0":            true,
		"[::1]:7070":              true,
		"[::ffff:127.0.0.1]:7070": true,
		"localhost:7070":          true,
		"LocalHost:7070":          true,
		"unix:/run/sluice.sock":   true,

		":7070":                      false,
		"0.0.0.0:7070":               false,
		"[::]:7070":                  false,
		"10.0.0.1:7070":              false,
		"[::ffff:10.0.0.1]:7070":     false,
		"example.com:7070":           false,
		"localhost.example.com:7070": false,
		"127.0.0.1.example.com:7070": false,
		"127.0.0.1":                  false,
		"":                           false,
		"tcp://127.0.0.1:7070":       false,
		"2130706433:7070":            false,
	} {
		if got := listen.IsLoopback(addr); got != want {
			t.Errorf("IsLoopback(%q) = %v, want %v", addr, got, want)
		}
	}
}

func reach(t *testing.T, network, address string) {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Errorf("cannot connect: %v", err)
		return
	}
	conn.Close()
}

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("error = %v, want one that contains %q", err, part)
	}
}
