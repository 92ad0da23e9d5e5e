package mongomodel

import "net"

// Listen starts a set that is reached over the network, each member at a listener of its own; the
// options' Members and Addresses are these. Close closes the listeners. All clients are called
// "net". A member that is down keeps its listener and closes the connections.
func Listen(o Options, listeners []net.Listener) *Set {
	o.Members, o.Addresses = len(listeners), nil
	for _, l := range listeners {
		o.Addresses = append(o.Addresses, l.Addr().String())
	}
	s := New(o)
	for i, l := range listeners {
		s.served.Go(func() { s.accept(s.members[i], l) })
		s.served.Go(func() {
			<-s.ended
			l.Close()
		})
	}
	return s
}

func (s *Set) accept(m *member, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if m.down || s.closed {
			c.Close()
		} else {
			s.serve(m, c, "net")
		}
		s.mu.Unlock()
	}
}
