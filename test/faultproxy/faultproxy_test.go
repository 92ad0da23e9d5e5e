package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// server answers each line with "re " and the line, and hands out what it got.
type server struct {
	addr string
	got  chan string
}

func startServer(t *testing.T) server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := server{addr: l.Addr().String(), got: make(chan string, 1000)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					s.got <- lines.Text()
					fmt.Fprintf(c, "re %s\n", lines.Text())
				}
				io.WriteString(c, "bye\n")
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return s
}

// wantGot checks what the server has got next.
func (s server) wantGot(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-s.got:
		if got != want {
			t.Errorf("the server got %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Errorf("the server has not got %q", want)
	}
}

// wantNothing checks that the server has got nothing.
func (s server) wantNothing(t *testing.T) {
	t.Helper()
	select {
	case got := <-s.got:
		t.Errorf("the server got %q", got)
	default:
	}
}

type client struct {
	*net.TCPConn
	lines *bufio.Reader
}

func dial(t *testing.T, p *Proxy) client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return client{TCPConn: c.(*net.TCPConn), lines: bufio.NewReader(c)}
}

func (c client) send(text string) error {
	_, err := io.WriteString(c, text+"\n")
	return err
}

func (c client) receive() (string, error) {
	line, err := c.lines.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// ask sends a request and waits for its reply.
func (c client) ask(request string) (string, error) {
	if err := c.send(request); err != nil {
		return "", err
	}
	return c.receive()
}

func (c client) wantReply(t *testing.T, request string) {
	t.Helper()
	if reply, err := c.ask(request); err != nil || reply != "re "+request {
		t.Errorf("reply to %q = %q, %v", request, reply, err)
	}
}

// wantCut checks that the request is not answered, and the connection over.
func (c client) wantCut(t *testing.T, request string) {
	t.Helper()
	if reply, err := c.ask(request); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reply to %q = %q, %v; want a cut connection", request, reply, err)
	}
}

// wantRefused checks that a new connection is of no use. The reset may come before the dial is
// over, or after.
func wantRefused(t *testing.T, p *Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v; want a refused connection", n, err)
	}
}

func TestForwardsBothWays(t *testing.T) {
	s := startServer(t)
	p := New(t, s.addr)
	c := dial(t, p)
	c.wantReply(t, "one")
	c.wantReply(t, strings.Repeat("x", 2*pieceBytes-17))
	require.NoError(t, c.CloseWrite())
	if rest, err := io.ReadAll(c.lines); string(rest) != "bye\n" || err != nil {
		t.Errorf("after the end of the requests: %q, %v", rest, err)
	}
	if got := p.Stats(); got != (Stats{Connections: 1}) {
		t.Errorf("stats %+v", got)
	}
}

func TestLosesTheReplyOfARequestThatWasServed(t *testing.T) {
	s := startServer(t)
	p := New(t, s.addr)
	c := dial(t, p)
	c.wantReply(t, "before")
	s.wantGot(t, "before")
	happened := p.CutAfterNextReply()
	c.wantCut(t, "lost")
	s.wantGot(t, "lost")
	<-happened
	dial(t, p).wantReply(t, "after")
	if got := p.Stats(); got != (Stats{Connections: 2, Cut: 1, LostReplies: 1}) {
		t.Errorf("stats %+v", got)
	}
}

func TestLosesARequest(t *testing.T) {
	s := startServer(t)
	p := New(t, s.addr)
	happened := p.CutNextRequest()
	dial(t, p).wantCut(t, "lost")
	<-happened
	s.wantNothing(t)
	dial(t, p).wantReply(t, "after")
	s.wantGot(t, "after")
	if got := p.Stats(); got != (Stats{Connections: 2, Cut: 1, LostRequests: 1}) {
		t.Errorf("stats %+v", got)
	}
}

func TestEachCallLosesOneMore(t *testing.T) {
	s := startServer(t)
	p := New(t, s.addr)
	first, second := p.CutAfterNextReply(), p.CutAfterNextReply()
	dial(t, p).wantCut(t, "a")
	<-first
	select {
	case <-second:
		t.Error("one reply counted twice")
	default:
	}
	dial(t, p).wantCut(t, "b")
	<-second
	dial(t, p).wantReply(t, "c")
}

func TestOnlyTheRequestsThatCount(t *testing.T) {
	s := startServer(t)
	p := New(t, s.addr)
	p.Only(func(request []byte) bool { return bytes.Contains(request, []byte("insert")) })
	p.CutAfterNextReply()
	c := dial(t, p)
	c.wantReply(t, "hello")
	c.wantReply(t, "ping")
	c.wantCut(t, "insert 1")
	p.CutReplies(1)
	c = dial(t, p)
	c.wantReply(t, "hello")
	c.wantCut(t, "insert 2")
}

func TestAReplyThatCannotComeIsLost(t *testing.T) {
	s := startServer(t)
	p := New(t, s.addr)
	c := dial(t, p)
	c.wantReply(t, "before")
	happened := p.CutAfterNextReply()
	// A piece of a request, which the server never answers.
	if _, err := io.WriteString(c, "half"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); !p.waiting(); {
		if time.Now().After(deadline) {
			t.Fatal("the request has not been seen")
		}
	}
	c.Close()
	<-happened
}

// waiting tells whether a connection waits for a reply that is to be swallowed.
func (p *Proxy) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.doomed {
			return true
		}
	}
	return false
}

func TestChanceIsTheSameForASeed(t *testing.T) {
	s := startServer(t)
	decisions := func(seed uint64) []string {
		p := New(t, s.addr)
		p.Seed(seed)
		p.CutRequests(0.2)
		p.CutReplies(0.3)
		var all []string
		for range 40 {
			before := p.Stats()
			_, err := dial(t, p).ask("x")
			switch after := p.Stats(); {
			case err == nil:
				all = append(all, "answered")
			case after.LostRequests > before.LostRequests:
				all = append(all, "request")
			case after.LostReplies > before.LostReplies:
				all = append(all, "reply")
			default:
				t.Fatalf("ended by no fault: %v", err)
			}
		}
		return all
	}
	first := decisions(7)
	for _, kind := range []string{"answered", "request", "reply"} {
		if !slices.Contains(first, kind) {
			t.Errorf("never: %s", kind)
		}
	}
	if again := decisions(7); !slices.Equal(first, again) {
		t.Errorf("one seed, two courses:\n%v\n%v", first, again)
	}
	if other := decisions(8); slices.Equal(first, other) {
		t.Error("the seed changes nothing")
	}
}

func TestPause(t *testing.T) {
	s := startServer(t)
	p := New(t, s.addr)
	c := dial(t, p)
	c.wantReply(t, "before")
	s.wantGot(t, "before")

	p.Pause(ToClient)
	require.NoError(t, c.send("reply held"))
	s.wantGot(t, "reply held")
	wantSilence(t, c)
	p.Resume(ToClient)
	if reply, err := c.receive(); reply != "re reply held" || err != nil {
		t.Errorf("after the pause: %q, %v", reply, err)
	}

	p.Pause(Both)
	require.NoError(t, c.send("request held"))
	wantSilence(t, c)
	s.wantNothing(t)
	p.Resume(ToClient)
	wantSilence(t, c)
	s.wantNothing(t)
	p.Resume(ToServer)
	if reply, err := c.receive(); reply != "re request held" || err != nil {
		t.Errorf("after the pause: %q, %v", reply, err)
	}
}

// wantSilence checks that nothing comes for a moment.
func wantSilence(t *testing.T, c client) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if text, err := c.receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v came through a pause", text, err)
	}
	c.SetReadDeadline(time.Now().Add(patience))
}

func TestDelay(t *testing.T) {
	s := startServer(t)
	p := New(t, s.addr)
	c := dial(t, p)
	const wait = 30 * time.Millisecond
	for _, test := range []struct {
		direction Direction
		want      time.Duration
	}{{ToServer, wait}, {ToClient, wait}, {Both, 2 * wait}} {
		p.Delay(test.direction, wait)
		begin := time.Now()
		c.wantReply(t, "slow")
		if took := time.Since(begin); took < test.want {
			t.Errorf("direction %d: answered after %v, want %v at least", test.direction, took, test.want)
		}
		p.Delay(Both, 0)
	}
	p.Delay(ToServer, time.Hour)
	require.NoError(t, c.send("very slow"))
	wantSilence(t, c)
	p.Delay(ToServer, 0)
	if reply, err := c.receive(); reply != "re very slow" || err != nil {
		t.Errorf("after the delay was taken back: %q, %v", reply, err)
	}
}

func TestRefuseAndCut(t *testing.T) {
	s := startServer(t)
	p := New(t, s.addr)
	old := dial(t, p)
	old.wantReply(t, "before")
	p.Refuse(true)
	wantRefused(t, p)
	old.wantReply(t, "still here")
	p.Cut()
	old.wantCut(t, "cut")
	p.Up()
	again := dial(t, p)
	again.wantReply(t, "again")
	p.Down()
	again.wantCut(t, "down")
	wantRefused(t, p)
	p.Heal()
	dial(t, p).wantReply(t, "healed")
	if got := p.Stats(); got != (Stats{Connections: 3, Refused: 2, Cut: 2}) {
		t.Errorf("stats %+v", got)
	}
}

func TestTargetThatIsNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	wantRefused(t, New(t, l.Addr().String()))
}

func TestCloseEndsWhatWaits(t *testing.T) {
	s := startServer(t)
	p := New(t, s.addr)
	p.Pause(ToClient)
	p.Delay(ToServer, time.Hour)
	var clients []client
	for range 5 {
		c := dial(t, p)
		require.NoError(t, c.send("held"))
		clients = append(clients, c)
	}
	p.Close()
	for _, c := range clients {
		if _, err := c.receive(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after the end of the proxy: %v", err)
		}
	}
	p.Close()
}

// TestFaultsAtOnce is for the race detector and for the promise that no goroutine stays behind.
func TestFaultsAtOnce(t *testing.T) {
	s := startServer(t)
	p := New(t, s.addr)
	p.CutRequests(0.1)
	p.CutReplies(0.1)
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 50 {
				c, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue // reset before the dial was over
				}
				client{TCPConn: c.(*net.TCPConn), lines: bufio.NewReader(c)}.ask("x") // it may be cut
				c.Close()
			}
		})
	}
	clients.Go(func() {
		for range 50 {
			p.Pause(Both)
			p.Cut()
			p.Delay(Both, time.Microsecond)
			p.Resume(Both)
			p.Refuse(true)
			p.Heal()
			p.CutReplies(0.1)
			p.Seed(1)
			_ = p.Stats()
		}
	})
	clients.Wait()
}
