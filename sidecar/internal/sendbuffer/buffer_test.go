package sendbuffer

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/test/require"
)

func piped(cfg Config) (b *Buffer, peer net.Conn) {
	socket, peer := net.Pipe()
	return New(socket, cfg), peer
}

// TestBufferKeepsOrder: all writes, corked or not, arrive in order, and a receipt comes once
// everything before it is on the socket.
func TestBufferKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, peer := piped(Config{Bytes: 1000, Silence: time.Minute})
		var want []byte
		corked := false
		var receipts []uint64 // the bytes accepted when each was asked for, if fewer were written when it came
		fill := byte(0)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				fill++
				p := bytes.Repeat([]byte{fill}, rapid.IntRange(0, 3*smallChunk).Draw(t, "bytes"))
				if n, err := b.Write(p); n != len(p) || err != nil {
					t.Fatal(n, err)
				}
				want = append(want, p...)
			case 2:
				if corked {
					b.Uncork()
				} else {
					b.Cork()
				}
				corked = !corked
			case 3:
				at := uint64(len(want))
				b.Then(func() {
					b.mu.Lock()
					defer b.mu.Unlock()
					if b.written < at {
						receipts = append(receipts, at)
					}
				}, nil)
			}
		}
		if corked {
			b.Uncork()
		}
		require.NoError(t, b.Close())
		got, err := io.ReadAll(peer)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes arrived of %d: %v", len(got), len(want), err)
		}
		b.Wait()
		if len(receipts) > 0 {
			t.Fatalf("receipts for %v bytes came before those", receipts)
		}
	})
}

func TestBufferTellsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := 0
		b, peer := piped(Config{Bytes: 2 * smallChunk, Silence: time.Hour, Wake: func() { woken++ }})
		if !b.HasRoom() {
			t.Error("no room in an empty send buffer")
		}
		for range 5 {
			_, _ = b.Write(make([]byte, smallChunk))
		}
		if b.HasRoom() {
			t.Error("room in a full send buffer")
		}
		waited := make(chan bool, 1)
		go func() {
			b.AwaitRoom()
			waited <- true
		}()
		synctest.Wait()
		if len(waited) != 0 || woken != 0 {
			t.Error("a full send buffer tells of room")
		}
		_, _ = io.ReadFull(peer, make([]byte, 5*smallChunk))
		synctest.Wait()
		if len(waited) != 1 || woken != 1 || !b.HasRoom() {
			t.Errorf("after draining: waited %d, woken %d", len(waited), woken)
		}
		b.Close()
		b.Wait()
	})
}

func TestBufferDropsPeerThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, peer := piped(Config{Bytes: 10, Silence: 5 * time.Minute})
		_, _ = b.Write(make([]byte, 4))
		for range 3 { // slow, but not dead
			time.Sleep(4 * time.Minute)
			if _, err := peer.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if !b.Stalled() {
			t.Error("a peer that takes nothing is still connected")
		}
		if _, err := b.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after the end: %v", err)
		}
		b.Wait()
	})
}

func TestBufferClosesWithinReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := piped(Config{Bytes: 10, Silence: time.Hour})
		_, _ = b.Write(make([]byte, 4))
		began := time.Now()
		b.Close()
		b.Wait()
		if took := time.Since(began); took != Linger {
			t.Errorf("closing took %v", took)
		}
		if b.Stalled() {
			t.Error("a closed send buffer counts as stalled")
		}
	})
}

// TestBufferCut: what the flusher has not taken is dropped with its receipts, and gives its memory
// back, which is whole chunks.
func TestBufferCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := budget.New(budget.Bounds{Memory: 10 * smallChunk}).Of("")
		b, peer := piped(Config{Bytes: 10, Silence: time.Hour, Memory: memory})
		var told []string
		note := func(what string) func() { return func() { told = append(told, what) } }
		_, _ = b.Write([]byte("taken"))
		b.Then(note("taken is written"), note("taken is dropped"))
		synctest.Wait()
		_, _ = b.Write([]byte("not taken"))
		b.Then(note("the other is written"), note("the other is dropped"))
		if used := memory.Used(); used != 2*smallChunk {
			t.Errorf("%d bytes are taken", used)
		}
		b.Cut(time.Now().Add(time.Minute))
		if b.Then(nil, nil) || b.HasRoom() {
			t.Error("a cut buffer is open")
		}
		got, err := io.ReadAll(peer)
		if b.Wait(); err != nil || string(got) != "taken" || memory.Used() != 0 {
			t.Errorf("%q arrived, %v; %d bytes are taken", got, err, memory.Used())
		}
		if want := []string{"the other is dropped", "taken is written"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// Who has waited for the end of a buffer knows all that it has dropped.
func TestBufferDropsBeforeWaitReturns(t *testing.T) {
	for name, end := range map[string]func(b *Buffer, peer net.Conn){
		"cut":    func(b *Buffer, _ net.Conn) { b.Cut(time.Now()) },
		"broken": func(_ *Buffer, peer net.Conn) { _ = peer.Close() },
	} {
		b, peer := piped(Config{Bytes: 10, Silence: time.Hour})
		_, _ = b.Write([]byte("taken"))
		if _, err := peer.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_, _ = b.Write([]byte("not taken"))
		waited, dropped := make(chan bool, 1), make(chan bool, 1)
		b.Then(nil, func() {
			go func() { b.Wait(); waited <- true }()
			time.Sleep(20 * time.Millisecond)
			dropped <- len(waited) == 0
		})
		end(b, peer)
		if !<-dropped {
			t.Errorf("%s: Wait has returned before", name)
		}
		<-waited
	}
}
