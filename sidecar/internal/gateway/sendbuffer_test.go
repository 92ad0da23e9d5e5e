package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func pipedSendBuffer(b Bounds) (o *sendBuffer, peer net.Conn) {
	socket, peer := net.Pipe()
	return newSendBuffer(socket, b, nil), peer
}

// TestSendBufferKeepsOrder: all writes, corked or not, arrive in order, and a receipt comes once
// everything before it is on the socket.
func TestSendBufferKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, peer := pipedSendBuffer(Bounds{SendBufferBytes: 1000, SlowClientTimeout: time.Minute})
		var want []byte
		corked := false
		var receipts []uint64 // the bytes accepted when each was asked for, if fewer were written when it came
		fill := byte(0)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				fill++
				p := bytes.Repeat([]byte{fill}, rapid.IntRange(0, 3*smallChunk).Draw(t, "bytes"))
				if n, err := o.Write(p); n != len(p) || err != nil {
					t.Fatal(n, err)
				}
				want = append(want, p...)
			case 2:
				if corked {
					o.uncork()
				} else {
					o.cork()
				}
				corked = !corked
			case 3:
				at := uint64(len(want))
				o.whenWritten(func() {
					o.mu.Lock()
					defer o.mu.Unlock()
					if o.written < at {
						receipts = append(receipts, at)
					}
				})
			}
		}
		if corked {
			o.uncork()
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(peer)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes arrived of %d: %v", len(got), len(want), err)
		}
		o.wait()
		if len(receipts) > 0 {
			t.Fatalf("receipts for %v bytes came before those", receipts)
		}
	})
}

func TestSendBufferTellsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, peer := pipedSendBuffer(Bounds{SendBufferBytes: 2 * smallChunk, SlowClientTimeout: time.Hour})
		woken := 0
		o.wake = func() { woken++ }
		if !o.hasRoom() {
			t.Error("no room in an empty send buffer")
		}
		for range 5 {
			_, _ = o.Write(make([]byte, smallChunk))
		}
		if o.hasRoom() {
			t.Error("room in a full send buffer")
		}
		reads := make(chan error, 1)
		go func() {
			_, err := o.Read(make([]byte, 1))
			reads <- err
		}()
		go func() { _, _ = peer.Write([]byte{1}) }()
		synctest.Wait()
		if len(reads) != 0 || woken != 0 {
			t.Error("a full send buffer let its peer be read")
		}
		_, _ = io.ReadFull(peer, make([]byte, 5*smallChunk))
		synctest.Wait()
		if err := <-reads; err != nil || woken != 1 || !o.hasRoom() {
			t.Errorf("after draining: read %v, woken %d", err, woken)
		}
		o.Close()
		o.wait()
	})
}

func TestSendBufferDropsPeerThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, peer := pipedSendBuffer(Bounds{SendBufferBytes: 10, SlowClientTimeout: 5 * time.Minute})
		_, _ = o.Write(make([]byte, 4))
		for range 3 { // slow, but not dead
			time.Sleep(4 * time.Minute)
			if _, err := peer.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if !o.isStalled() {
			t.Error("a peer that takes nothing is still connected")
		}
		if _, err := o.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after the end: %v", err)
		}
		if _, err := o.Read(make([]byte, 1)); err == nil {
			t.Error("read after the end")
		}
		o.wait()
	})
}

func TestSendBufferClosesWithinReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := pipedSendBuffer(Bounds{SendBufferBytes: 10, SlowClientTimeout: time.Hour})
		_, _ = o.Write(make([]byte, 4))
		began := time.Now()
		o.Close()
		if _, err := o.Read(make([]byte, 1)); err == nil {
			t.Error("read after Close")
		}
		o.wait()
		if took := time.Since(began); took != closeLinger {
			t.Errorf("closing took %v", took)
		}
		if o.isStalled() {
			t.Error("a closed send buffer counts as stalled")
		}
	})
}
