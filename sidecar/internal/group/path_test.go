package group

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
)

// path is a process's way to the store.
type path struct {
	mu     sync.Mutex
	dead   bool
	err    error
	paused chan struct{} // while set, calls wait for it to be closed
	late   bool          // they wait before they act, or else after
	calls  int
}

func (p *path) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *path) fail(err error) { p.set(func() { p.err = err }) }

// pause holds the process's calls up, as if it were stopped. With late, calls act when the process
// wakes; without it they act, and return only then.
func (p *path) pause(late bool) {
	p.set(func() { p.paused, p.late = make(chan struct{}), late })
}

func (p *path) wake() {
	p.set(func() {
		if p.paused != nil {
			close(p.paused)
			p.paused = nil
		}
	})
}

func (p *path) die() {
	p.set(func() { p.dead = true })
	p.wake()
}

func (p *path) count() (n int) {
	p.set(func() { n = p.calls })
	return n
}

// call acts unless the path is broken.
func (p *path) call(act func()) error {
	p.mu.Lock()
	p.calls++
	paused, late := p.paused, p.late
	p.mu.Unlock()
	if paused != nil && late {
		<-paused
	}
	p.mu.Lock()
	err := p.err
	if p.dead {
		err = errStore
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	act()
	if paused != nil && !late {
		<-paused
	}
	return nil
}

// pathLog is the log at the end of a path.
type pathLog struct {
	*fakeLog
	path *path
}

func via[T any](p *path, act func() (T, error)) (got T, err error) {
	if failed := p.call(func() { got, err = act() }); failed != nil {
		return got, failed
	}
	return got, err
}

func (l *pathLog) EnsureTopic(ctx context.Context, name string, n int) (eventlog.Topic, error) {
	return via(l.path, func() (eventlog.Topic, error) { return l.fakeLog.EnsureTopic(ctx, name, n) })
}

func (l *pathLog) LookupTopic(ctx context.Context, name string) (eventlog.Topic, error) {
	return via(l.path, func() (eventlog.Topic, error) { return l.fakeLog.LookupTopic(ctx, name) })
}

func (l *pathLog) Extents(ctx context.Context, name string) ([]eventlog.Extent, error) {
	return via(l.path, func() ([]eventlog.Extent, error) { return l.fakeLog.Extents(ctx, name) })
}

func (l *pathLog) Read(ctx context.Context, name string, i int, from uint64, b eventlog.Bounds) ([]*eventlog.Record, error) {
	return via(l.path, func() ([]*eventlog.Record, error) { return l.fakeLog.Read(ctx, name, i, from, b) })
}

func (l *pathLog) Seek(ctx context.Context, name string, p eventlog.Position) ([]uint64, error) {
	return via(l.path, func() ([]uint64, error) { return l.fakeLog.Seek(ctx, name, p) })
}

func (l *pathLog) AllEpochs(ctx context.Context) ([]eventlog.Epoch, error) {
	return via(l.path, func() ([]eventlog.Epoch, error) { return l.fakeLog.AllEpochs(ctx) })
}

func (l *pathLog) Backlog(ctx context.Context, known []eventlog.Hint) ([]eventlog.Extent, error) {
	return via(l.path, func() ([]eventlog.Extent, error) { return l.fakeLog.Backlog(ctx, known) })
}

func (l *pathLog) LatestEpochs(ctx context.Context, name, group string) ([]eventlog.Epoch, error) {
	return via(l.path, func() ([]eventlog.Epoch, error) { return l.fakeLog.LatestEpochs(ctx, name, group) })
}

func (l *pathLog) TakeEpochs(ctx context.Context, epochs []eventlog.Epoch) (errs []error) {
	if err := l.path.call(func() { errs = l.fakeLog.TakeEpochs(ctx, epochs) }); err != nil {
		return slices.Repeat([]error{err}, len(epochs))
	}
	return errs
}

func (l *pathLog) SaveEpochs(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
	_, err := via(l.path, func() (struct{}, error) { return struct{}{}, l.fakeLog.SaveEpochs(ctx, epochs, marks) })
	return err
}

func (l *pathLog) Sync(ctx context.Context) error {
	_, err := via(l.path, func() (struct{}, error) { return struct{}{}, l.fakeLog.Sync(ctx) })
	return err
}

// pathNodes is the store's list of nodes at the end of a path.
type pathNodes struct {
	*eventlogtest.Nodes
	path *path
}

func (n *pathNodes) SaveNode(ctx context.Context, x eventlog.Node) (err error) {
	failed := n.path.call(func() { err = n.Nodes.SaveNode(ctx, x) })
	return errors.Join(failed, err)
}

func (n *pathNodes) EndNode(ctx context.Context, id string) error {
	return n.path.call(func() { _ = n.Nodes.EndNode(ctx, id) })
}

func (n *pathNodes) DeclareDead(ctx context.Context, id string, beat uint64) (dead bool, err error) {
	err = n.path.call(func() { dead, _ = n.Nodes.DeclareDead(ctx, id, beat) })
	return dead, err
}

func (n *pathNodes) Enter(ctx context.Context, changes ...eventlog.NodeChange) error {
	return n.path.call(func() { _ = n.Nodes.Enter(ctx, changes...) })
}

func (n *pathNodes) Look(ctx context.Context, ids []string, known uint64) (found []eventlog.Node, roll eventlog.Roll, err error) {
	err = n.path.call(func() { found, roll, _ = n.Nodes.Look(ctx, ids, known) })
	return found, roll, err
}

func (n *pathNodes) ListNodes(ctx context.Context, ids ...string) (all []eventlog.Node, err error) {
	err = n.path.call(func() { all, _ = n.Nodes.ListNodes(ctx, ids...) })
	return all, err
}

var (
	_ Log            = (*pathLog)(nil)
	_ eventlog.Nodes = (*pathNodes)(nil)
)
