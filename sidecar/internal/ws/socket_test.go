package ws

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/sendbuffer"
	"github.com/sluice-bus/sluice/test/require"
)

// pipedSocket is a socket whose messages may take a minute.
func pipedSocket(bytes int) (s *socket, peer net.Conn) {
	raw, peer := net.Pipe()
	out := sendbuffer.New(raw, sendbuffer.Config{Bytes: bytes, Silence: time.Hour, Wake: func() {}})
	return &socket{Conn: raw, out: out, timeout: time.Minute}, peer
}

// A socket is not read while too much waits to be written to it, nor once it is closed.
func TestSocketIsReadIfThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer := pipedSocket(10)
		_, _ = s.Write(make([]byte, 20))
		reads := make(chan error, 1)
		go func() {
			_, err := s.Read(make([]byte, 1))
			reads <- err
		}()
		go func() { _, _ = peer.Write([]byte{1}) }()
		synctest.Wait()
		if len(reads) != 0 {
			t.Error("the peer is read while its replies wait")
		}
		_, _ = io.ReadFull(peer, make([]byte, 20))
		if err := <-reads; err != nil {
			t.Error(err)
		}
		_, _ = s.Write(make([]byte, 4))
		_ = s.Close()
		if _, err := s.Read(make([]byte, 1)); err == nil {
			t.Error("read after Close")
		}
		s.out.Wait()
	})
}

// A message has its deadline from its beginning on. There is no deadline between two messages.
func TestDeadlineOfAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, peer := pipedSocket(1000)
		read := func() error { _, err := o.Read(make([]byte, 1)); return err }
		drip := func(n int) {
			for range n {
				time.Sleep(25 * time.Second)
				_, _ = peer.Write([]byte{1})
			}
		}
		go drip(2 + 2 + 4)
		for range 2 {
			o.beginMessage()
			for range 2 {
				require.NoError(t, read())
			}
			require.NoError(t, o.endMessage())
		}
		o.beginMessage()
		var err error
		n := 0
		for ; err == nil; n++ {
			err = read()
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || n != 3 {
			t.Errorf("%v at byte %d; want no more than a minute's", err, n)
		}
		_ = o.Close()
		_ = peer.Close()
		o.out.Wait()
		time.Sleep(time.Hour) // until nobody writes any more
	})
}
