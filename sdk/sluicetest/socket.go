package sluicetest

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
)

// The server's half of RFC 6455, as far as clients that send whole messages
// need it. Unlike a general library it answers many frames with one system
// call, so that it is not what a load generator waits for.

const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10

	tooBig = 1009 // a status of opClose

	socketBuffer = 64 << 10
)

// socket is one WebSocket. One goroutine reads; any may send.
type socket struct {
	conn net.Conn
	in   *bufio.Reader
	text []byte // the message that was read last

	mu     sync.Mutex
	filled sync.Cond
	out    []byte
	closed bool
}

// upgrade makes a socket of a request.
func upgrade(w http.ResponseWriter, r *http.Request) (*socket, error) {
	key := r.Header.Get("Sec-WebSocket-Key")
	if key == "" {
		http.Error(w, "a WebSocket handshake is expected", http.StatusBadRequest)
		return nil, errors.New("not a handshake")
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	s := &socket{conn: conn, in: bufio.NewReaderSize(conn, socketBuffer)}
	s.filled.L = &s.mu
	s.out = append(s.out, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+
		base64.StdEncoding.EncodeToString(sum[:])+"\r\n\r\n"...)
	return s, nil
}

// read returns the next text message, valid until the next call. io.EOF means
// that the client said good-bye.
func (s *socket) read() ([]byte, error) {
	for {
		op, err := s.readFrame()
		if err != nil {
			return nil, err
		}
		switch op {
		case opText:
			return s.text, nil
		case opPing:
			s.send(opPong, s.text)
		case opClose:
			s.send(opClose, s.text)
			return nil, io.EOF
		}
	}
}

func (s *socket) readFrame() (op byte, err error) {
	var head [14]byte
	if _, err := io.ReadFull(s.in, head[:2]); err != nil {
		return 0, err
	}
	size := uint64(head[1] & 0x7f)
	rest := 4 // the mask
	switch size {
	case 126:
		rest += 2
	case 127:
		rest += 8
	}
	if _, err := io.ReadFull(s.in, head[2:2+rest]); err != nil {
		return 0, err
	}
	switch size {
	case 126:
		size = uint64(binary.BigEndian.Uint16(head[2:]))
	case 127:
		size = binary.BigEndian.Uint64(head[2:])
	}
	const most = 64 << 20
	if size > most {
		return 0, errors.New("a message of more than 64 MiB")
	}
	if uint64(cap(s.text)) < size {
		s.text = make([]byte, size)
	}
	s.text = s.text[:size]
	if _, err := io.ReadFull(s.in, s.text); err != nil {
		return 0, err
	}
	unmask(s.text, [4]byte(head[2+rest-4:2+rest]))
	return head[0] & 0x0f, nil
}

func unmask(b []byte, key [4]byte) {
	word := uint64(binary.LittleEndian.Uint32(key[:]))
	word |= word << 32
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^word)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= key[i%4]
	}
}

// send queues a message. It does not wait.
func (s *socket) send(op byte, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = append(s.out, 0x80|op)
	switch n := len(text); {
	case n < 126:
		s.out = append(s.out, byte(n))
	case n < 1<<16:
		s.out = binary.BigEndian.AppendUint16(append(s.out, 126), uint16(n))
	default:
		s.out = binary.BigEndian.AppendUint64(append(s.out, 127), uint64(n))
	}
	s.out = append(s.out, text...)
	s.filled.Signal()
}

// sendClose queues a good-bye.
func (s *socket) sendClose(status uint16) {
	s.send(opClose, binary.BigEndian.AppendUint16(nil, status))
}

// close ends the writer, once it has written what was sent.
func (s *socket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.filled.Signal()
}

// write writes what is sent until the socket is closed.
func (s *socket) write() {
	defer s.conn.Close()
	var load []byte
	for {
		s.mu.Lock()
		for len(s.out) == 0 && !s.closed {
			s.filled.Wait()
		}
		load, s.out = s.out, load[:0]
		s.mu.Unlock()
		if len(load) == 0 {
			return
		}
		if _, err := s.conn.Write(load); err != nil {
			return
		}
	}
}
