package ws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A silent connection is pinged after 30 s, and ended once two pings in a row have no answer.
func TestSilentPeerIsPinged(t *testing.T) {
	for name, c := range map[string]struct {
		answers string                  // y or n for each ping
		during  func(*socket, net.Conn) // what happens meanwhile
		want    string                  // the seconds of the pings, and of the end
	}{
		"answers":             {answers: "yyyy", want: "[30 60 90]"},
		"answers every other": {answers: "nyny", want: "[30 60 90]"},
		"does not answer":     {answers: "nn", want: "[30 60] dead at 90"},
		"sends": {answers: "y", during: func(_ *socket, peer net.Conn) {
			time.Sleep(20 * time.Second)
			_, _ = peer.Write([]byte{1})
		}, want: "[50 80]"},
		"is sent to": {answers: "y", during: func(s *socket, peer net.Conn) {
			time.Sleep(25 * time.Second)
			_, _ = s.Write([]byte{1})
			_, _ = peer.Read(make([]byte, 1))
		}, want: "[55 85]"},
		"reads no replies": {answers: "nn", during: func(s *socket, _ net.Conn) { _, _ = s.Write([]byte{1}) }, want: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, peer := pipedSocket(100)
				s.moved()
				go func() {
					for {
						if _, err := s.Read(make([]byte, 1)); err != nil {
							return
						}
					}
				}()
				began := time.Now()
				pings, end := []int{}, ""
				seconds := func() int { return int(time.Since(began).Seconds()) }
				k := &keepAlive{socket: s, after: 30 * time.Second, dead: func() { end = fmt.Sprint(" dead at ", seconds()) }}
				k.ping = func(ctx context.Context) error {
					pings = append(pings, seconds())
					if n := len(pings); n <= len(c.answers) && c.answers[n-1] == 'n' {
						<-ctx.Done()
						return errors.New("no answer")
					}
					s.moved() // the pong
					return nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				k.start(ctx)
				if c.during != nil {
					go c.during(s, peer)
				}
				time.Sleep(100 * time.Second)
				cancel()
				k.stop()
				if got := fmt.Sprint(pings) + end; got != c.want {
					t.Errorf("pings at %s; want %s", got, c.want)
				}
				s.out.Abort()
				peer.Close()
			})
		})
	}
}
