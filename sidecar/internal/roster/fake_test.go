package roster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
)

var errStore = errors.New("store on fire")

// fakeNodes is the store's list of nodes in memory.
type fakeNodes struct {
	*eventlogtest.Nodes
	saves, ends, looks, lists, entries, read atomic.Int64 // calls, and nodes and rolls that were read

	mu   sync.Mutex
	told []*sidecar // hear signals
}

func newFakeNodes() *fakeNodes { return &fakeNodes{Nodes: eventlogtest.NewNodes()} }

// live are the nodes that are.
func (f *fakeNodes) live() (live []eventlog.Node) {
	all, _ := f.Nodes.ListNodes(context.Background())
	return slices.DeleteFunc(all, func(n eventlog.Node) bool { return n.State != eventlog.NodeLive })
}

// names are those of the live nodes.
func (f *fakeNodes) names() string {
	var names []string
	for _, n := range f.live() {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (f *fakeNodes) groupsOf(name string) int {
	for _, n := range f.live() {
		if n.Name == name {
			return len(n.Groups)
		}
	}
	return -1
}

// fakePath is the way of one sidecar to the store.
type fakePath struct {
	*fakeNodes
	mu     sync.Mutex
	err    error
	before chan struct{} // while set, calls wait for it to be closed, and then act
	after  chan struct{} // as above, but they act first
	// Entries in the roll fail, or come a second time so much later.
	lostEntries bool
	lateEntries time.Duration
}

func (p *fakePath) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// call acts as what the path is like says. A call that waits is not to be cancelled, like those of
// a process that is stopped.
func (p *fakePath) call(act func()) error {
	p.mu.Lock()
	err, before, after := p.err, p.before, p.after
	p.mu.Unlock()
	if before != nil {
		<-before
	}
	if err != nil {
		return err
	}
	act()
	if after != nil {
		<-after
	}
	return nil
}

func (p *fakePath) SaveNode(ctx context.Context, n eventlog.Node) (err error) {
	failed := p.call(func() {
		p.saves.Add(1)
		err = p.Nodes.SaveNode(ctx, n)
	})
	return errors.Join(failed, err)
}

func (p *fakePath) EndNode(ctx context.Context, id string) error {
	return p.call(func() {
		p.ends.Add(1)
		_ = p.Nodes.EndNode(ctx, id)
	})
}

func (p *fakePath) DeclareDead(ctx context.Context, id string, beat uint64) (dead bool, err error) {
	err = p.call(func() { dead, _ = p.Nodes.DeclareDead(ctx, id, beat) })
	return dead, err
}

func (p *fakePath) Enter(ctx context.Context, changes ...eventlog.NodeChange) error {
	p.mu.Lock()
	lost, late := p.lostEntries, p.lateEntries
	p.mu.Unlock()
	if lost {
		return errStore
	}
	return p.call(func() {
		p.entries.Add(1)
		_ = p.Nodes.Enter(ctx, changes...)
		if late > 0 {
			time.AfterFunc(late, func() { _ = p.Nodes.Enter(context.Background(), changes...) })
		}
	})
}

func (p *fakePath) Look(ctx context.Context, ids []string, known uint64) (found []eventlog.Node, roll eventlog.Roll, err error) {
	err = p.call(func() {
		p.looks.Add(1)
		found, roll, _ = p.Nodes.Look(ctx, ids, known)
		p.read.Add(int64(len(found) + min(1, len(roll.Changes))))
	})
	return found, roll, err
}

func (p *fakePath) ListNodes(ctx context.Context, ids ...string) (all []eventlog.Node, err error) {
	err = p.call(func() {
		p.lists.Add(1)
		all, _ = p.Nodes.ListNodes(ctx, ids...)
		p.read.Add(int64(len(all)))
	})
	return all, err
}

// sidecar is a roster that runs.
type sidecar struct {
	*Roster
	path   *fakePath
	looks  atomic.Int32
	news   atomic.Int32
	about  atomic.Pointer[[]eventlog.GroupName] // the last news
	end    context.CancelFunc
	logged lockedbuffer.Buffer
	ended  chan struct{}
}

const lease = 10 * time.Second

func (f *fakeNodes) start(name string) *sidecar { return f.startKeeping(name, nil) }

func (f *fakeNodes) startKeeping(name string, pendingEnds PendingEnds) *sidecar {
	return f.startOn(&fakePath{fakeNodes: f}, name, pendingEnds)
}

func (f *fakeNodes) startOn(path *fakePath, name string, pendingEnds PendingEnds) *sidecar {
	s := &sidecar{path: path, ended: make(chan struct{})}
	s.Roster = New(Config{
		Nodes: s.path, Name: name, Lease: lease, Logger: slog.New(slog.NewTextHandler(&s.logged, nil)),
		Announced: s.announce, PendingEnds: pendingEnds,
	})
	s.Watch(func() { s.looks.Add(1) })
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	go func() {
		defer close(s.ended)
		_ = s.Run(ctx)
	}()
	synctest.Wait()
	return s
}

// announce is a signal to the others.
func (s *sidecar) announce(about []eventlog.GroupName) {
	s.news.Add(1)
	s.about.Store(&about)
	s.path.fakeNodes.mu.Lock()
	defer s.path.fakeNodes.mu.Unlock()
	for _, o := range s.path.told {
		if o != s {
			o.Wake()
		}
	}
}

// tell lets these hear signals.
func (f *fakeNodes) tell(all ...*sidecar) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = all
}

// stop ends it in order.
func (s *sidecar) stop() {
	s.end()
	<-s.ended
}

// kill ends it without a word.
func (s *sidecar) kill() {
	s.path.set(func() { s.path.err = errStore })
	s.stop()
}

// sees tells whom it takes for alive, itself included.
func (s *sidecar) sees() string {
	if !s.View().Known() {
		return "nothing"
	}
	return strings.Join(s.View().all, " ")
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func groupName(i int) eventlog.GroupName {
	return eventlog.GroupName{Topic: "t", Group: fmt.Sprintf("g%d", i)}
}
