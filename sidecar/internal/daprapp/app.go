// Package daprapp delivers events to an application that was written for Dapr: it asks the
// application for its subscriptions, and posts each event, as a CloudEvent, to the route of its
// subscription. It is a member of consumer groups, like those of the gateway.
//
// # Its life
//
//	ask ──▶ GET /dapr/subscribe, until the application answers
//	 ▲       │
//	 │       ▼
//	 │      serve: one member for each subscription ──▶ POST the event ──▶ ack, nack
//	 │       │
//	 └───────┘ nothing listens there any more: members leave, deliveries in
//	           flight go back without counting an attempt
//
// So after a restart the application is asked again, and no attempts are counted.
package daprapp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// Bounds of the work for an application.
const (
	// Concurrency is how many events of one subscription the application gets at a time.
	Concurrency = 16
	// maxSubscriptions is how many subscriptions it may have.
	maxSubscriptions = 1000
	// maxAnswer bounds how much of the answer to an event is read; maxList bounds the answer with
	// the subscriptions.
	maxAnswer = 64 << 10
	maxList   = 1 << 20
	// askTimeout is how long the application may take to answer with its subscriptions.
	askTimeout = 5 * time.Second
)

// Config is what an App needs; every field is required, except for May.
type Config struct {
	Address  *url.URL // of the application, from ParseAddress
	AppID    string   // the name of its consumer groups
	Groups   *group.Manager
	Policies *policy.Current
	Logger   *slog.Logger
	Share    *budget.Share // of the application's identity
	// May returns why the application may not subscribe to a topic, if it may not; nil lets it
	// subscribe to all. Its answers may change: see RightsChanged.
	May func(topic string) error
}

// RightsOf are the rights to subscribe of an entry of --auth-config, for Config.May.
func RightsOf(a *access.Access, identity, group string) (func(topic string) error, error) {
	id, err := a.Named(identity)
	if err != nil {
		return nil, err
	}
	return func(topic string) error {
		current, err := a.Renew(&id)
		if err != nil {
			return err
		}
		return current.May(access.Subscribe, topic, group)
	}, nil
}

// App is the application's side; nil: there is none. Its methods are safe for concurrent use. Run may
// be called once.
type App struct {
	cfg    Config
	client *http.Client

	// pushing is the context of the events at the application. It outlives Run's context, so that
	// the application can finish.
	pushing context.Context
	abort   context.CancelFunc
	done    chan struct{} // closed when Run returns
	rights  pause.Wake    // holds one token: the rights have changed
}

// New makes an App.
func New(cfg Config) *App {
	a := &App{cfg: cfg, done: make(chan struct{}), rights: pause.NewWake()}
	a.pushing, a.abort = context.WithCancel(context.Background())
	a.client = &http.Client{
		// No proxy and no redirects to elsewhere: the application is on the same machine.
		Transport:     &http.Transport{MaxIdleConnsPerHost: 4 * Concurrency, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return a
}

// ParseAddress reads the address of an application: http://HOST:PORT. HOST must be this machine.
func ParseAddress(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Port() == "" || *u != (url.URL{Scheme: u.Scheme, Host: u.Host}) {
		return nil, fmt.Errorf("%q must be http://HOST:PORT", text)
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%q is not on this machine: the host must be localhost or a loopback address", text)
	}
	return u, nil
}

// Run serves the application until ctx ends. Then it delivers nothing more, and returns once the
// application has answered for all its events, or after Shutdown's deadline.
func (a *App) Run(ctx context.Context) error {
	if a == nil {
		return nil
	}
	defer close(a.done)
	defer a.client.CloseIdleConnections()
	defer a.abort()
	for {
		subs, told := a.ask(ctx)
		if !told {
			return nil
		}
		if len(subs) == 0 {
			a.cfg.Logger.Info("the application has no subscriptions", "app", a.cfg.Address.String())
			<-ctx.Done()
			return nil
		}
		gone := a.serve(ctx, subs)
		if ctx.Err() != nil {
			return nil
		}
		if !gone {
			continue // because its rights have changed
		}
		a.cfg.Logger.Warn("the application does not answer: its events wait until it does", "app", a.cfg.Address.String())
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

// Pauses between two requests for the subscriptions, or two tries to subscribe.
const (
	firstPause = 100 * time.Millisecond
	mostPause  = 5 * time.Second
)

// ask asks the application for its subscriptions until it answers; false: ctx has ended.
func (a *App) ask(ctx context.Context) ([]subscription, bool) {
	backoff := pause.Backoff{First: firstPause, Most: mostPause}
	told := false
	for {
		list, err := a.list(ctx)
		if err == nil {
			return a.usable(list), true
		}
		if !told && ctx.Err() == nil {
			a.cfg.Logger.Info("waiting for the list of subscriptions of the application", "app", a.cfg.Address.String(), "error", err)
			told = true
		}
		if !pause.For(ctx, backoff.Step()) {
			return nil, false
		}
	}
}

// errAway says that nothing listens at the application's address.
var errAway = errors.New("nothing listens at the application's address")
