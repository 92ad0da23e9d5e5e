// Package listen opens the listeners of Sluice's servers from the addresses that operators write:
// host:port and unix:/path. It tells which of them stay on this machine.
package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	unixPrefix = "unix:"
	// maxSocketPath is what fits into a socket address on every system Go listens on, with its
	// closing zero.
	maxSocketPath = 103
	// probeTimeout bounds the check whether a process listens on an existing socket.
	probeTimeout = time.Second
)

// On listens on addr: "host:port", where port 0 picks a free one, no host means every interface and localhost both of its addresses,
// or "unix:/path". It replaces a socket file without a listening process; closing the listener
// removes its own. The folder of a socket and the process's umask decide which users may connect to
// it.
func On(ctx context.Context, addr string) (net.Listener, error) {
	if err := Check(addr); err != nil {
		return nil, err
	}
	var config net.ListenConfig
	path, isUnix := strings.CutPrefix(addr, unixPrefix)
	if !isUnix {
		addr = withBrackets(addr)
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		var ln net.Listener
		if strings.EqualFold(host, "localhost") {
			ln, err = onLocalhost(ctx, port)
		} else {
			ln, err = config.Listen(ctx, "tcp", addr)
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: another process listens there; stop it, or choose another port (0 picks one)", err)
		}
		return ln, err
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, fmt.Errorf("address %q: %w", addr, err)
	}
	return config.Listen(ctx, "unix", path)
}

// Check refuses what is not an address to listen on.
func Check(addr string) error {
	if path, isUnix := strings.CutPrefix(addr, unixPrefix); isUnix {
		if path == "" || len(path) > maxSocketPath {
			return fmt.Errorf("address %q: the path of a socket has 1 to %d bytes", addr, maxSocketPath)
		}
		return nil
	}
	_, port, err := net.SplitHostPort(withBrackets(addr))
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("address %q: want host:port with a port of 0 (pick one) to 65535, or unix:/path", addr)
	}
	return nil
}

// removeStale removes the socket at path if no process listens on it any more. Any other file stays
// and is an error.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("a file that is not a socket is there already")
	}
	dialer := net.Dialer{Timeout: probeTimeout}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(conn.Close(), errors.New("another process listens there; stop it, or choose another path"))
	}
	// Only a refusal proves that no process listens: a listener may be slow, or this process may
	// not be allowed to reach it.
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether another process listens there: %w", err)
	}
	return os.Remove(path)
}

// Address is the address that l is really bound to, in the form that On takes.
func Address(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return unixPrefix + l.Addr().String()
	}
	return l.Addr().String()
}

// IsLoopback tells whether only this machine can reach addr: a unix socket, or a host that is
// localhost or a loopback address. A name is not looked up, and an address that cannot be parsed is
// not loopback.
func IsLoopback(addr string) bool {
	if strings.HasPrefix(addr, unixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(withBrackets(addr))
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
