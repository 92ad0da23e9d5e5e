package progress

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// gate is an injector that holds syncs up while it is shut, and counts them.
type gate struct {
	file  string // the end of the names of files that it is about
	begun atomic.Int32
	open  atomic.Pointer[chan struct{}] // closed to let them pass
}

func (g *gate) shut() (release func()) {
	c := make(chan struct{})
	g.open.Store(&c)
	return func() { close(c) }
}

func (g *gate) MaybeError(op errorfs.Op) error {
	sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
	if c := g.open.Load(); sync && c != nil && strings.HasSuffix(op.Path, g.file) {
		g.begun.Add(1)
		<-*c
	}
	return nil
}

func (g *gate) String() string { return "gate" }

// reached waits until n syncs have begun.
func (g *gate) reached(n int32) {
	for g.begun.Load() < n {
		runtime.Gosched()
	}
}

// TestSyncsShare: all Syncs that come while one is under way are served by one more, and no Put
// waits for either.
func TestSyncsShare(t *testing.T) {
	g := &gate{}
	j := mustOpen(t, errorfs.Wrap(folder(t), g), rewriteAbove)
	defer j.Close()
	release := g.shut()
	var syncs sync.WaitGroup
	var answered atomic.Int32
	syncOne := func() {
		syncs.Go(func() {
			if err := j.Sync(t.Context()); err != nil {
				t.Errorf("Sync: %v", err)
			}
			answered.Add(1)
		})
	}
	put(t, j, "a", "1")
	syncOne()
	g.reached(1)
	for i := range 50 {
		put(t, j, "a", fmt.Sprint(i))
		syncOne()
	}
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	if err := j.Sync(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a Sync whose context is over: %v", err)
	}
	if n := answered.Load(); n != 0 {
		t.Errorf("%d Syncs are answered before any has ended", n)
	}
	release()
	syncs.Wait()
	// A Sync that is slow to ask may need a third.
	if n := g.begun.Load(); n > 3 {
		t.Errorf("%d syncs of the file for 51 calls", n)
	}
}

// TestSyncPromisesNoMoreThanItDid: an entry that was put while a sync ran needs another sync.
func TestSyncPromisesNoMoreThanItDid(t *testing.T) {
	g := &gate{}
	j := mustOpen(t, errorfs.Wrap(folder(t), g), rewriteAbove)
	defer j.Close()
	release := g.shut()
	put(t, j, "a", "1")
	synced := make(chan error, 1)
	go func() { synced <- j.Sync(t.Context()) }()
	g.reached(1)
	put(t, j, "a", "2")
	release()
	if err := <-synced; err != nil || g.begun.Load() != 1 {
		t.Errorf("the first Sync: %v, after %d syncs of the file", err, g.begun.Load())
	}
	if err := j.Sync(t.Context()); err != nil || g.begun.Load() != 2 {
		t.Errorf("the second Sync: %v, after %d syncs of the file", err, g.begun.Load())
	}
}

// TestRewriteHoldsNoPutUp: puts go on while a rewrite waits for the disk, and what they wrote is in
// the file that it ends with.
func TestRewriteHoldsNoPutUp(t *testing.T) {
	disk := folder(t)
	g := &gate{file: ".tmp"}
	j := mustOpen(t, errorfs.Wrap(disk, g), 1000)
	release := g.shut()
	n := 0
	more := func() { n++; put(t, j, "a", fmt.Sprintf("%100d", n), "b", fmt.Sprint(n)) }
	for range 10 {
		more()
	}
	g.reached(1) // the rewrite's
	for range 10 {
		more()
	}
	synced := make(chan error, 1)
	go func() { synced <- j.Sync(t.Context()) }()
	select {
	case err := <-synced:
		t.Errorf("Sync returned %v during a rewrite", err)
	default:
	}
	release()
	if err := <-synced; err != nil {
		t.Errorf("Sync: %v", err)
	}
	more()
	if err := j.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if size := len(readAll(t, disk)); size > 1000 {
		t.Errorf("the file has %d bytes", size)
	}
	if got := content(t, disk); got["b"] != fmt.Sprint(n) || len(got) != 2 {
		t.Errorf("it holds %v; want b %d", got, n)
	}
}
