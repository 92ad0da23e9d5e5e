package ws

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/sendbuffer"
)

// socket is the network connection under a WebSocket. What the library writes, with pongs and close
// frames, goes into a send buffer. So the library never holds one of its locks for longer than a
// copy takes.
type socket struct {
	net.Conn
	out     *sendbuffer.Buffer
	timeout time.Duration // of a message of the peer

	receiving atomic.Bool  // a message is being read
	reading   atomic.Bool  // the peer is being read from
	last      atomic.Int64 // when something went either way, in nanoseconds since the epoch

	mu     sync.Mutex
	timed  bool // the message being read has its deadline
	closed bool // reading has ended
}

func (s *socket) Write(p []byte) (int, error) {
	s.moved()
	return s.out.Write(p)
}

// moved says that something went either way.
func (s *socket) moved() { s.last.Store(time.Now().UnixNano()) }

// silence is how long ago something went either way.
func (s *socket) silence() time.Duration { return time.Since(time.Unix(0, s.last.Load())) }

// listening reports whether the peer is being read from, and has read what was sent to it.
func (s *socket) listening() bool { return s.reading.Load() && s.out.Len() == 0 }

// Read waits while the send buffer is over its bound: a client that does not read its replies is
// not read from. Reads within a message have the message's deadline; a message that arrives at once
// needs none.
func (s *socket) Read(p []byte) (int, error) {
	s.out.AwaitRoom()
	if s.receiving.Load() {
		s.mu.Lock()
		if !s.timed && !s.closed {
			s.timed = true
			_ = s.Conn.SetReadDeadline(time.Now().Add(s.timeout))
		}
		s.mu.Unlock()
	}
	s.reading.Store(true)
	n, err := s.Conn.Read(p)
	s.reading.Store(false)
	s.moved()
	return n, err
}

// beginMessage says that the reader has received the beginning of a message.
func (s *socket) beginMessage() { s.receiving.Store(true) }

// endMessage says that the reader has received the end of a message. Its error is that of a
// connection that has ended.
func (s *socket) endMessage() error {
	s.receiving.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.timed || s.closed {
		return nil
	}
	s.timed = false
	return s.Conn.SetReadDeadline(time.Time{})
}

// Close ends reading at once. It ends the connection when all accepted data is written, or after
// sendbuffer.Linger.
func (s *socket) Close() error {
	s.mu.Lock()
	s.closed = true
	_ = s.Conn.SetReadDeadline(time.Now())
	s.mu.Unlock()
	return s.out.Close()
}
