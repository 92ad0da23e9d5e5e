// Package push gives events of consumer groups to HTTP endpoints that know nothing of Sluice: each is POSTed, signed as Standard
// Webhooks 1.0 has it, and the answer settles it. A file has the endpoints. Each is a member of its group, by package delivery, and the
// carrier of its own events; this package knows the file, HTTP and signatures.
//
// A changed file ends the endpoints that it changes or leaves out: they answer for the events that they have, and what they do not answer
// for goes back to their groups. The others notice nothing.
package push

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/filewatch"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/delivery"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Config is what a Push needs; every field but Tracing and Propagation is required.
type Config struct {
	Path     string // of the file
	Groups   *group.Manager
	Policies *policy.Current
	Metrics  *telemetry.Metrics
	Logger   *slog.Logger
	// Tracing makes a span of each request; nil: off. Propagation says how a request carries a trace.
	Tracing     *tracing.Tracing
	Propagation *tracing.Propagation
	// Known returns what is wrong with an entry's identity, which may be "".
	Known func(identity string) error
	// May returns why an identity may not consume, if it may not. Its answers may change: see RightsChanged.
	May   func(identity, topic, group string) error
	Share func(identity string) *budget.Share
	// Note returns what writes lines about a member of a group to the access log; nil: off.
	Note func(identity, from, topic, group string) func(action string, err error)
}

// Push serves the endpoints of a file; nil: there are none. Its methods are safe for concurrent use. Run may be called once.
type Push struct {
	cfg     Config
	file    file // is watch's after Open
	watch   *filewatch.Watch
	changed pause.Wake // the file, or rights

	giving context.Context // of the requests. It outlives Run's context, so that endpoints can answer
	abort  context.CancelFunc
	done   chan struct{}  // closed when Run returns
	parts  sync.WaitGroup // the endpoints, and what watches the file

	mu      sync.Mutex
	entries []Entry
	version int // of the file
	serving map[key]*endpoint
}

// Open reads the file. An error has every mistake in it.
func Open(cfg Config) (*Push, error) {
	p := &Push{
		cfg: cfg, file: file{path: cfg.Path, known: cfg.Known}, changed: pause.NewWake(), done: make(chan struct{}), serving: map[key]*endpoint{},
	}
	var sum []byte
	var err error
	if p.entries, sum, err = p.file.load(); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Path, err)
	}
	p.giving, p.abort = context.WithCancel(context.Background())
	p.watch = filewatch.New(filewatch.Config{Taken: sum, Read: p.look, Take: p.take, Failed: func(err error) {
		cfg.Logger.Warn("the endpoints of --push stay as they are: the file cannot be read", "file", cfg.Path, "error", err)
	}})
	return p, nil
}

// look is a digest of the file and those that it names.
func (p *Push) look() ([]byte, error) {
	_, sum, err := p.file.load()
	if sum == nil {
		return nil, err
	}
	return sum, nil // an error of the content is told once, by take
}

// take puts a changed file in force.
func (p *Push) take([]byte) {
	entries, _, err := p.file.load()
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			p.cfg.Logger.Error("the endpoints of --push stay as they are: the changed file is invalid",
				"file", p.cfg.Path, "problem", strings.TrimSpace(line))
		}
		return
	}
	p.mu.Lock()
	p.entries = entries
	p.version++
	p.mu.Unlock()
	p.cfg.Logger.Info("the endpoints of --push have changed", "file", p.cfg.Path, "endpoints", len(entries))
	p.changed.Set()
}

// Reread makes Run read the file at once.
func (p *Push) Reread() {
	if p != nil {
		p.watch.Reread()
	}
}

// RightsChanged makes Run ask Config.May again.
func (p *Push) RightsChanged() { p.changed.Set() }

// Run serves the endpoints until ctx ends. Then it delivers nothing more, and returns once they have answered for all their
// events, or after Shutdown's deadline.
func (p *Push) Run(ctx context.Context) error {
	if p == nil {
		return nil
	}
	defer close(p.done)
	defer p.abort()
	defer p.parts.Wait()
	p.parts.Go(func() { p.watch.Run(ctx) })
	for version := -1; ; {
		version = p.arrange(ctx, version)
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		}
	}
}

// Shutdown waits until Run has returned; Run's context has ended before. When ctx ends, endpoints get no more time.
func (p *Push) Shutdown(ctx context.Context) {
	if p == nil {
		return
	}
	defer context.AfterFunc(ctx, p.abort)()
	<-p.done
}

// arrange ends and begins endpoints, so that those of the file are served; version is the file's at the last time, and the result its
// version now.
func (p *Push) arrange(ctx context.Context, version int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := map[key]*Entry{}
	for i := range p.entries {
		e := &p.entries[i]
		if err := p.cfg.May(e.Identity, e.Topic, e.Group); err != nil {
			p.cfg.Logger.Error("an endpoint of --push is not served", "topic", e.Topic, "group", e.Group, "error", err)
			member := p.member(e)
			member.NoteSubscribe(err)
			continue
		}
		wanted[e.key()] = e
	}
	for k, e := range p.serving {
		want := wanted[k]
		again := p.version != version && e.isGone() // the operator may have seen to it
		if want == nil || again || !reflect.DeepEqual(*want, e.Entry) {
			e.end() // it answers for its events, while the next one gets others
			delete(p.serving, k)
		} else {
			delete(wanted, k)
		}
	}
	for k, want := range wanted {
		p.serving[k] = p.begin(ctx, *want)
	}
	return p.version
}

// begin serves an entry.
func (p *Push) begin(ctx context.Context, entry Entry) *endpoint {
	e := newEndpoint(entry, &p.cfg)
	ctx, e.end = context.WithCancel(eventlog.MadeBy(ctx, entry.Identity))
	p.parts.Go(func() {
		defer e.end()
		cfg := p.member(&e.Entry)
		cfg.Carrier = e
		e.serve(ctx, p.giving, cfg)
	})
	return e
}

// member is the configuration of the member for an entry, without what carries its events.
func (p *Push) member(e *Entry) delivery.Config {
	cfg := delivery.Config{
		Topic: e.Topic, Group: e.Group, Options: wire.SubscribeOptions{From: e.From, Filter: e.Filter},
		Name: "push to " + e.URL.Host, Address: e.URL.Host, Window: e.MaxInflight, Batch: 1,
		Groups: p.cfg.Groups, Policies: p.cfg.Policies, Share: p.cfg.Share(e.Identity), Logger: p.cfg.Logger,
	}
	if p.cfg.Note != nil {
		cfg.Note = p.cfg.Note(e.Identity, cfg.Name, e.Topic, e.Group)
	}
	return cfg
}

// serve is a member of the entry's group until ctx ends.
func (p *endpoint) serve(ctx, giving context.Context, cfg delivery.Config) {
	defer p.client.CloseIdleConnections()
	m := delivery.Join(ctx, giving, cfg)
	if m == nil {
		return
	}
	p.member.Store(m)
	m.Start()
	<-ctx.Done()
	m.Leave(group.Unsubscribed)
}

// Stats are the endpoints that are served, by topic and group.
func (p *Push) Stats() []Stat {
	stats := []Stat{}
	if p == nil {
		return stats
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.serving {
		stats = append(stats, e.stat())
	}
	slices.SortFunc(stats, func(a, b Stat) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return strings.Compare(a.Group, b.Group)
	})
	return stats
}
