// Package daprapp delivers events to an application that was written for Dapr, over HTTP or gRPC: it asks the
// application for its subscriptions, adds those of files, and gives it each event, as a CloudEvent, at the route of its
// subscription. It is a member of consumer groups, like those of the gateway.
//
// # Its life
//
//	ask ──▶ for the subscriptions, until the application answers
//	 ▲       │
//	 │       ▼
//	 │      serve: one member for each subscription ──▶ give events ──▶ ack, nack
//	 │       │                    the application is asked again now and then
//	 └───────┘ it answers otherwise, or nothing listens there any more: members leave,
//	           deliveries in flight go back without counting an attempt
//
// So after a restart its subscriptions are those that it has then, and no attempts are counted meanwhile.
package daprapp

import (
	"context"
	"log/slog"
	"net/url"
	"reflect"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Bounds of the work for an application.
const (
	// Concurrency is how many events of one subscription the application gets at a time, where they come one by one.
	Concurrency = 16
	// maxBatch is how many it gets at a time of a subscription in bulk.
	maxBatch = 1000
	// maxSubscriptions is how many subscriptions it may have.
	maxSubscriptions = 1000
	// maxAnswer bounds how much of the answer to an event is read, and to each event of a batch; maxList bounds the
	// answer with the subscriptions.
	maxAnswer      = 64 << 10
	maxEntryAnswer = 1 << 10
	maxList        = 1 << 20
	// askTimeout is how long the application may take to answer with its subscriptions.
	askTimeout = 5 * time.Second
)

// Pauses between two requests for the subscriptions: until the application answers, and while it is served.
const (
	firstPause = 100 * time.Millisecond
	mostPause  = time.Second
	askEvery   = 5 * time.Second
)

// Config is what an App needs; every field is required, except for Described, Token, Share, May and Note.
type Config struct {
	Address   *url.URL // of the application, from ParseAddress
	AppID     string   // begins the names of its consumer groups
	Described []Described
	Token     func() string // for the application
	Groups    *group.Manager
	Policies  *policy.Current
	Logger    *slog.Logger
	Share     *budget.Share // of the application's identity
	// Tracing makes a span of each call; nil: off. Propagation says how a call carries a trace.
	Tracing     *tracing.Tracing
	Propagation *tracing.Propagation
	// May returns why the application may not have a subscription, if it may not; nil lets it have all. Its answers may
	// change: see RightsChanged.
	May func(topic, group, deadLetterTopic string) error
	// Note returns what writes lines about a member of a group to the access log; nil: off.
	Note func(from, topic, group string) func(action string, err error)
}

// RightsOf are the rights of an entry of --auth-config, for Config.May.
func RightsOf(a *access.Access, identity string) (func(topic, group, deadLetterTopic string) error, error) {
	id, err := a.Named(identity)
	if err != nil {
		return nil, err
	}
	return func(topic, group, deadLetterTopic string) error {
		current, err := a.Renew(&id)
		if err != nil {
			return err
		}
		return Allowed(current, topic, group, deadLetterTopic)
	}, nil
}

// Allowed returns why an identity may not have a subscription. A topic for its dead letters is one that it publishes to.
func Allowed(id *access.Identity, topic, group, deadLetterTopic string) error {
	if err := id.May(access.Subscribe, topic, group); err != nil || deadLetterTopic == "" || deadLetterTopic == topic+wire.DeadLetterSuffix {
		return err
	}
	return id.May(access.Publish, deadLetterTopic, "")
}

// channel is the application over one protocol. Its errors are errAway if nothing listens there.
type channel interface {
	// list asks for the subscriptions; an application that does not know the question has none.
	list(ctx context.Context) ([]Described, error)
	// give gives events to the application, one or, in bulk, several, all for one path.
	give(ctx context.Context, b *batch) ([]verdict, error)
	close()
}

// App is the application's side; nil: there is none. Its methods are safe for concurrent use. Run may
// be called once.
type App struct {
	cfg     Config
	channel channel

	// giving is the context of the events at the application. It outlives Run's context, so that
	// the application can finish.
	giving context.Context
	abort  context.CancelFunc
	done   chan struct{} // closed when Run returns
	rights pause.Wake    // holds one token: the rights have changed
}

// New makes an App.
func New(cfg Config) (*App, error) {
	if cfg.Token == nil {
		cfg.Token = func() string { return "" }
	}
	a := &App{cfg: cfg, done: make(chan struct{}), rights: pause.NewWake()}
	a.giving, a.abort = context.WithCancel(context.Background())
	var err error
	a.channel, err = open(&a.cfg)
	return a, err
}

// Run serves the application until ctx ends. Then it delivers nothing more, and returns once the
// application has answered for all its events, or after Shutdown's deadline.
func (a *App) Run(ctx context.Context) error {
	if a == nil {
		return nil
	}
	defer close(a.done)
	defer a.channel.close()
	defer a.abort()
	log := a.cfg.Logger.With("app", a.cfg.Address.String())
	for {
		list, answered := a.ask(ctx)
		if !answered {
			return nil
		}
		subs := a.usable(list)
		if len(subs) == 0 {
			log.Info("the application has no subscriptions")
		}
		switch why := a.serve(ctx, list, subs); {
		case ctx.Err() != nil:
			return nil
		case why == away:
			log.Warn("the application does not answer: its events wait until it does")
		case why == changed:
			log.Info("the application has other subscriptions than before")
		}
	}
}

// RightsChanged makes Run ask Config.May again.
func (a *App) RightsChanged() { a.rights.Set() }

// Shutdown waits until Run has returned; Run's context has ended before. When ctx ends, the
// application gets no more time.
func (a *App) Shutdown(ctx context.Context) {
	if a == nil {
		return
	}
	defer context.AfterFunc(ctx, a.abort)()
	<-a.done
}

// ask asks the application for its subscriptions until it answers; false: ctx has ended.
func (a *App) ask(ctx context.Context) ([]Described, bool) {
	backoff := pause.Backoff{First: firstPause, Most: mostPause}
	for logged := false; ; {
		list, err := a.askOnce(ctx)
		if err == nil {
			return list, true
		}
		if !logged && ctx.Err() == nil {
			a.cfg.Logger.Info("waiting for the list of subscriptions of the application", "app", a.cfg.Address.String(), "error", err)
			logged = true
		}
		if !pause.For(ctx, backoff.Step()) {
			return nil, false
		}
	}
}

func (a *App) askOnce(ctx context.Context) ([]Described, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return a.channel.list(ctx)
}

// usable returns the subscriptions that can be served, those of files first, and logs why others cannot.
func (a *App) usable(list []Described) (out []Subscription) {
	seen, letters := map[string]bool{}, map[string][]string{}
	_, overGRPC := a.channel.(*grpcChannel)
	for _, d := range append(a.cfg.Described[:len(a.cfg.Described):len(a.cfg.Described)], list...) {
		s, err := d.Check(!overGRPC)
		key := d.PubsubName + "/" + d.Topic
		bad := ""
		switch {
		case err != nil:
			bad = err.Error()
		case seen[key]:
			bad = "pubsub and topic have one already"
		case comesBack(letters, &s):
			bad = "deadLetterTopic leads back to the topic, by those of other subscriptions: its dead letters would come again for ever"
		case len(out) == maxSubscriptions:
			bad = "the application has as many as it may, 1000"
		}
		if bad != "" {
			a.cfg.Logger.Error("a subscription of the application is not served",
				"app", a.cfg.Address.String(), "topic", d.Topic, "pubsub", d.PubsubName, "error", bad)
			continue
		}
		seen[key] = true
		letters[s.Topic] = append(letters[s.Topic], s.letters())
		out = append(out, s)
	}
	return out
}

// same reports whether the application has answered alike.
func same(a, b []Described) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }
