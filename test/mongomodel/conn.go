package mongomodel

import (
	"net"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// conn is a client's connection to a member. Its commands are executed one after the other.
type conn struct {
	net.Conn
	set    *Set
	member *member
	from   string
	id     int64
}

// serve answers a connection until one side closes it. The lock is held.
func (s *Set) serve(m *member, nc net.Conn, from string) {
	s.nextConn++
	c := &conn{Conn: nc, set: s, member: m, from: from, id: s.nextConn}
	m.conns[c] = true
	s.served.Go(func() {
		c.run()
		nc.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(m.conns, c)
	})
}

// disconnect closes all connections of a member. The lock is held.
func (s *Set) disconnect(m *member) {
	for c := range m.conns {
		c.Close()
		delete(m.conns, c)
	}
	s.wake()
}

func (c *conn) run() {
	var out []byte
	var msg *message // the next one, if it follows from the last
	for {
		if msg == nil {
			var err error
			if msg, err = readMessage(c.Conn); err != nil {
				return
			}
		}
		if !c.reachable() {
			return
		}
		reply, ok := c.handle(msg)
		if !ok || !c.reachable() {
			return
		}
		if msg.silent {
			msg = nil
			continue
		}
		replyID := nextReply.Add(1)
		next := msg.next(reply, replyID)
		out = appendReply(out[:0], msg, reply, replyID, next != nil)
		if _, err := c.Write(out); err != nil {
			return
		}
		msg = next
	}
}

// reachable waits while the link is cut, like the messages on it.
func (c *conn) reachable() bool {
	s := c.set
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wait(time.Time{}, func() bool { return s.reach(c.from, c.member.name) || !c.member.conns[c] })
}

// Request describes a command to Options.Fault.
type Request struct {
	From       string // the client's name
	Member     int
	Primary    bool // the member believes that it is the primary
	Command    string
	Database   string
	Collection string
	// Body is the command, and Documents are its document sequence: the documents, updates or
	// deletes of a write.
	Body      bson.Raw
	Documents []bson.Raw
}

// Fault says how a command is disturbed.
type Fault struct {
	// Delay holds it up before it is executed.
	Delay time.Duration
	// LoseRequest: it is not executed. LoseAnswer: it is executed, and the answer is lost. The
	// client's connection breaks.
	LoseRequest, LoseAnswer bool
	// Silent leaves the connection open when a request or an answer is lost: the client waits until
	// its own timeout.
	Silent bool
	// Late executes a lost request after that time: it was still on its way when its sender gave
	// up.
	Late time.Duration
	// Halt ends a write of several statements after that many of them: the rest is not executed,
	// and the answer is lost. 0: all are executed.
	Halt int
}

// handle executes a command; false says that the connection has to end.
func (c *conn) handle(msg *message) (bson.Raw, bool) {
	s := c.set
	call := newCall(c, msg)
	var f Fault
	if s.opts.Fault != nil && call.err == nil && !call.spec.monitoring {
		s.mu.Lock()
		r := call.request()
		s.mu.Unlock()
		f = s.opts.Fault(r)
	}
	if !s.sleep(f.Delay) {
		return nil, false
	}
	call.halt = f.Halt
	if f.LoseRequest || f.Late > 0 {
		if f.Late > 0 {
			s.later(f.Late, call)
		}
		return nil, c.lose(call, "lost", f.Silent)
	}
	reply := call.execute()
	switch {
	case reply == nil: // halted, or the member ended meanwhile
		return nil, c.idle(f.Silent)
	case f.LoseAnswer:
		return nil, c.lose(call, "answer lost", f.Silent)
	}
	return reply, true
}

// later executes a command after its time. Its answer is dropped.
func (s *Set) later(d time.Duration, call *call) {
	s.served.Go(func() {
		if s.sleep(d) {
			call.execute()
		}
	})
}

// lose records a command whose request or answer is lost, and ends the connection. It returns
// false.
func (c *conn) lose(call *call, outcome string, silent bool) bool {
	c.set.mu.Lock()
	c.set.record(call, outcome)
	c.set.mu.Unlock()
	return c.idle(silent)
}

// idle ends a connection without an answer: if silent, only when the client closes it. It returns
// false.
func (c *conn) idle(silent bool) bool {
	if silent {
		var b [1]byte
		c.Read(b[:]) // the client closes it, or Close does
	}
	return false
}
