package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/tunnel"
	"github.com/sluice-bus/sluice/internal/tunnel/tunneltest"
	"github.com/sluice-bus/sluice/test/require"
)

// tester is a test or a property's.
type tester interface {
	require.T
	Cleanup(func())
	Errorf(format string, args ...any)
}

func equal(t tester, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}

func is(t tester, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("the error is %v; want %v", got, want)
	}
}

// accepting is a control plane with a sidecar that accepts one connection after another.
type accepting struct {
	*tunneltest.Plane
	accepted chan net.Conn
}

func accept(t tester) accepting {
	p := accepting{tunneltest.NewPlane(t, nil), make(chan net.Conn)}
	l, _ := p.Sidecar(t, "node", "life")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.accepted <- c
		}
	}()
	return p
}

// ends are both ends of a new connection.
func (p accepting) ends(t tester) (control, sidecar net.Conn) {
	place := p.Take(t)
	control, err := p.Dial(context.Background(), place.Key)
	require.NoError(t, err)
	sidecar = <-p.accepted
	t.Cleanup(func() {
		control.Close()
		sidecar.Close()
		place.Release()
	})
	return control, sidecar
}

func TestBytesArriveInOrderUpToTheEnd(t *testing.T) {
	p := accept(t)
	rapid.Check(t, func(t *rapid.T) {
		control, sidecar := p.ends(t)
		from, to := control, sidecar
		if rapid.Bool().Draw(t, "the sidecar sends") {
			from, to = to, from
		}
		sent := make([]byte, rapid.IntRange(0, 300_000).Draw(t, "bytes"))
		_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
		step := rapid.IntRange(1+len(sent)/500, 100_000).Draw(t, "step")
		cut := rapid.Bool().Draw(t, "the reader leaves in the middle")
		sending := make(chan struct{})
		go func() {
			defer close(sending)
			if !cut {
				defer from.Close()
			}
			for rest := sent; len(rest) > 0; rest = rest[min(step, len(rest)):] {
				if _, err := from.Write(rest[:min(step, len(rest))]); err != nil {
					return
				}
			}
		}()
		if cut {
			got := make([]byte, len(sent)/2)
			_, err := io.ReadFull(to, got)
			require.NoError(t, err)
			to.Close()
			equal(t, bytes.Equal(got, sent[:len(got)]), true)
			for err == nil { // the sender learns of it
				_, err = from.Write(make([]byte, 1000))
			}
			<-sending
			return
		}
		got, err := io.ReadAll(to)
		require.NoError(t, err)
		if from == sidecar { // which closes in order; the control plane's end cuts
			equal(t, bytes.Equal(got, sent), true)
		} else if !bytes.HasPrefix(sent, got) {
			t.Fatalf("got %d bytes that were not sent", len(got))
		}
	})
}

func TestDeadlinesEndReadsAndWrites(t *testing.T) {
	for _, name := range []string{"control plane", "sidecar"} {
		c, other := accept(t).ends(t)
		if name == "sidecar" {
			c = other
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("%s: a read that waits too long: %v", name, err)
		}
		_ = c.SetReadDeadline(time.Time{})
		_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if err := fill(c); !isTimeout(err) {
			t.Errorf("%s: a write that nobody reads: %v", name, err)
		}
		_ = c.SetWriteDeadline(time.Time{})
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// fill writes until it fails.
func fill(c net.Conn) (err error) {
	for err == nil {
		_, err = c.Write(make([]byte, 64<<10))
	}
	return err
}

func TestAReaderThatStopsHoldsBackTheSidecar(t *testing.T) {
	_, sidecar := accept(t).ends(t)
	total := 0
	_ = sidecar.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for {
		n, err := sidecar.Write(make([]byte, 8<<10))
		total += n
		if err != nil {
			break
		}
	}
	// The window, what gRPC takes before it waits for it, and a message at each end.
	if most := tunnel.StreamWindow + 256<<10; total > most {
		t.Errorf("%d bytes are on their way to somebody who does not read; want at most %d", total, most)
	}
}

func TestManyRequestsShareSixteenConnections(t *testing.T) {
	p := tunneltest.NewPlane(t, nil)
	var mu sync.Mutex
	now, most := 0, 0
	p.Serve(t, "node", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		text, _ := io.ReadAll(r.Body)
		_, _ = w.Write(text)
		mu.Lock()
		now--
		mu.Unlock()
	}))
	place := p.Take(t)
	client := &http.Transport{
		MaxConnsPerHost: tunnel.MaxConnections, MaxIdleConnsPerHost: tunnel.MaxConnections,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx, place.Key) },
	}
	defer client.CloseIdleConnections()
	var work sync.WaitGroup
	for i := range 300 {
		work.Go(func() {
			text := strings.Repeat(fmt.Sprint(i), 5000)
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sidecar/", strings.NewReader(text))
			answer, err := client.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			if got, err := io.ReadAll(answer.Body); err != nil || string(got) != text {
				t.Errorf("request %d: %d bytes of %d, %v", i, len(got), len(text), err)
			}
		})
	}
	work.Wait()
	if most > tunnel.MaxConnections || most < 2 {
		t.Errorf("%d requests at a time; want up to %d", most, tunnel.MaxConnections)
	}
}

func TestPlacesAreSharedOutAndWaitedFor(t *testing.T) {
	p := tunneltest.NewPlane(t, nil)
	for _, node := range []string{"a", "b"} {
		p.Serve(t, node, http.NotFoundHandler())
	}
	p.Await(t, 2)
	held := map[string]int{}
	var places []*tunnel.Place
	for len(places) < 2*tunnel.MaxConnections {
		place, err := p.Server.Take(t.Context(), tunneltest.Store, nil)
		require.NoError(t, err)
		held[place.Node]++
		places = append(places, place)
	}
	equal(t, held, map[string]int{"a": tunnel.MaxConnections, "b": tunnel.MaxConnections})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := p.Server.Take(ctx, tunneltest.Store, nil)
	is(t, err, context.DeadlineExceeded)
	time.AfterFunc(time.Millisecond, places[0].Release)
	place, err := p.Server.Take(t.Context(), tunneltest.Store, nil)
	require.NoError(t, err)
	equal(t, place.Node, places[0].Node)
	tried := map[string]bool{}
	for _, place := range places {
		tried[place.Key] = true
	}
	_, err = p.Server.Take(t.Context(), tunneltest.Store, tried)
	is(t, err, tunnel.ErrNone)
}

func TestAnotherProcessReplacesTheOneBefore(t *testing.T) {
	p := tunneltest.NewPlane(t, nil)
	accept := func(instance string) {
		l, _ := p.Sidecar(t, "node", instance)
		go func() { _, _ = l.Accept() }()
	}
	accept("first")
	before := p.Take(t)
	accept("second")
	for {
		place := p.Take(t)
		place.Release()
		if place.Key != before.Key {
			break
		}
		pause.For(t.Context(), time.Millisecond)
	}
}

func TestASidecarThatMayNotJoinGetsNoConnection(t *testing.T) {
	asked := make(chan string, 100)
	p := tunneltest.NewPlane(t, func(_ context.Context, node, _ string) error {
		asked <- node
		return status.Error(codes.PermissionDenied, "no")
	})
	l, _ := p.Sidecar(t, "node", "life")
	over := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		over <- err
	}()
	equal(t, <-asked, "node")
	_, err := p.Server.Take(t.Context(), tunneltest.Store, nil)
	is(t, err, tunnel.ErrNone)
	l.Close()
	is(t, <-over, net.ErrClosed)
}

func TestWhenTheControlPlaneStopsBothEndsLearnOfIt(t *testing.T) {
	p := accept(t)
	control, sidecar := p.ends(t)
	place := p.Take(t)
	p.RPC.Stop()
	for _, c := range []net.Conn{control, sidecar} {
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("the end of a connection: %v", err)
		}
		c.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for { // until its end is noticed
		if _, err := p.Dial(ctx, place.Key); err != nil {
			require.NoError(t, ctx.Err())
			return
		}
	}
}
