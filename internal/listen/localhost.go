package listen

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
)

// portTries is how many ports are tried where each family has to have the same one, and any will do.
const portTries = 20

// onLocalhost listens on both loopback addresses, on the same port: clients connect to either, by what localhost means to them. On a
// machine without IPv6, or without IPv4, it listens on the other.
func onLocalhost(ctx context.Context, port string) (net.Listener, error) {
	var config net.ListenConfig
	for try := 1; ; try++ {
		first, err := config.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
		if isMissing(err) {
			return config.Listen(ctx, "tcp6", net.JoinHostPort("::1", port))
		}
		if err != nil {
			return nil, err
		}
		_, bound, _ := net.SplitHostPort(first.Addr().String())
		second, err := config.Listen(ctx, "tcp6", net.JoinHostPort("::1", bound))
		switch {
		case err == nil:
			return newPair(first, second), nil
		case isMissing(err):
			return first, nil
		}
		first.Close()
		if port != "0" || try == portTries || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
}

// isMissing reports whether the machine has no address of a family.
func isMissing(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// withBrackets adds those that an IPv6 address has in host:port, as in ::1:7070.
func withBrackets(addr string) string {
	last := strings.LastIndexByte(addr, ':')
	if last < 0 || strings.HasPrefix(addr, "[") {
		return addr
	}
	if ip, err := netip.ParseAddr(addr[:last]); err != nil || !ip.Is6() {
		return addr
	}
	return "[" + addr[:last] + "]" + addr[last:]
}

// pair accepts what either of two listeners does. Its address is the first one's.
type pair struct {
	net.Listener
	second   net.Listener
	accepted chan accepted
	closed   chan struct{}
	close    func() error
	running  sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

func newPair(first, second net.Listener) *pair {
	p := &pair{Listener: first, second: second, accepted: make(chan accepted), closed: make(chan struct{})}
	p.close = sync.OnceValue(func() error {
		close(p.closed)
		err := errors.Join(first.Close(), second.Close())
		p.running.Wait()
		return err
	})
	for _, ln := range []net.Listener{first, second} {
		p.running.Go(func() { p.pass(ln) })
	}
	return p
}

// pass hands over what a listener accepts until it is closed.
func (p *pair) pass(ln net.Listener) {
	for {
		c, err := ln.Accept()
		select {
		case p.accepted <- accepted{c, err}:
		case <-p.closed:
			if c != nil {
				c.Close()
			}
			return
		}
	}
}

// Accept implements net.Listener.
func (p *pair) Accept() (net.Conn, error) {
	select {
	case <-p.closed:
		return nil, net.ErrClosed
	case a := <-p.accepted:
		return a.conn, a.err
	}
}

// Close implements net.Listener.
func (p *pair) Close() error { return p.close() }
