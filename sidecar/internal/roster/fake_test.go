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
)

var errStore = errors.New("store on fire")

// fakeNodes is the store's list of nodes in memory.
type fakeNodes struct {
	mu    sync.Mutex
	nodes map[string]eventlog.Node
	saves int
	lists int
}

func newFakeNodes() *fakeNodes {
	return &fakeNodes{nodes: make(map[string]eventlog.Node)}
}

// names are those of the live nodes.
func (f *fakeNodes) names() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, n := range f.nodes {
		if n.State == eventlog.NodeLive {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// calls counts the saves and lists so far.
func (f *fakeNodes) calls() (saves, lists int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.saves, f.lists
}

func (f *fakeNodes) groupsOf(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.nodes {
		if n.Name == name && n.State == eventlog.NodeLive {
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
}

func (p *fakePath) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// call acts as what the path is like says. A call that waits is not to be
// cancelled, like those of a process that is stopped.
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
	p.fakeNodes.mu.Lock()
	act()
	p.fakeNodes.mu.Unlock()
	if after != nil {
		<-after
	}
	return nil
}

func (p *fakePath) SaveNode(_ context.Context, n eventlog.Node) error {
	over := false
	err := p.call(func() {
		p.saves++
		n.Groups = slices.Clone(n.Groups)
		stored, there := p.nodes[n.ID]
		if over = stored.State != eventlog.NodeLive || !there && n.Beat > 1; !over && n.Beat > stored.Beat {
			p.nodes[n.ID] = n
		}
	})
	if over {
		return eventlog.ErrNotFound
	}
	return err
}

func (p *fakePath) EndNode(_ context.Context, id string) error {
	_, err := p.end(id, eventlog.NodeEnded, func(eventlog.Node) bool { return true })
	return err
}

func (p *fakePath) DeclareDead(_ context.Context, id string, beat uint64) (bool, error) {
	return p.end(id, eventlog.NodeDead, func(n eventlog.Node) bool { return n.Beat == beat })
}

func (p *fakePath) end(id string, state eventlog.NodeState, may func(eventlog.Node) bool) (ended bool, err error) {
	err = p.call(func() {
		if n, there := p.nodes[id]; there && n.State == eventlog.NodeLive && may(n) {
			n.State = state
			p.nodes[id], ended = n, true
		}
	})
	return ended, err
}

func (p *fakePath) ListNodes(context.Context) (all []eventlog.Node, err error) {
	err = p.call(func() {
		p.lists++
		for _, n := range p.nodes {
			all = append(all, n)
		}
	})
	return all, err
}

// sidecar is a roster that runs.
type sidecar struct {
	*Roster
	path  *fakePath
	looks atomic.Int32
	news  atomic.Int32
	end   context.CancelFunc
	ended chan struct{}
}

const lease = 10 * time.Second

func (f *fakeNodes) start(name string) *sidecar { return f.startKeeping(name, nil) }

func (f *fakeNodes) startKeeping(name string, unended Unended) *sidecar {
	s := &sidecar{path: &fakePath{fakeNodes: f}, ended: make(chan struct{})}
	s.Roster = New(Config{
		Nodes: s.path, Name: name, Lease: lease, Logger: slog.New(slog.DiscardHandler),
		Announced: func() { s.news.Add(1) }, Unended: unended,
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
