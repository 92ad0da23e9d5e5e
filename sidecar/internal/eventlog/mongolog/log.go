// Package mongolog is the shared event log: an eventlog.Shared in one MongoDB database, for any
// number of sidecars. The package knows events and documents, and nothing of their publishers,
// limits or consumers.
//
// An event's path: append.go reserves a seq at its topic's head (heads.go) and inserts the event
// there (insert.go); duplicate.go tells repeated publishes from seqs that readers have voided;
// read.go, scan.go and seek.go return events, up to the first seq that is missing (holes.go);
// retention.go removes them. collections.go lists the documents. epochs.go has the progress of
// groups. nodes.go and signals.go have the messages between sidecars (sender.go sends them; tail.go
// follows them).
package mongolog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// DefaultDatabase is the database of a URL that names none.
const DefaultDatabase = "sluice"

// Options say where a log is and how it is used.
type Options struct {
	// URL is a MongoDB connection string. Its path names the database.
	URL string
	// Prefix goes before the name of every collection; mostly empty.
	Prefix string
	// NodeID is the name of this client in MongoDB's own logs.
	NodeID string
	// WriteConcern is a topic's, as policies write it ("majority" or "w:1"); nil means majority for
	// every topic. It must be quick.
	WriteConcern func(topic string) string
	// Timeout bounds one operation, retries included; 0: DefaultTimeout.
	Timeout time.Duration
	// Linger is how long a topic's next batch waits after the previous one: callers that were just
	// answered may have more events. Below 0: no wait; 0: DefaultLinger.
	Linger time.Duration
	// SeqTaken is how long the seq of a removed event stays taken. An append that the server
	// executes later than that may break promises. 0: DefaultSeqTaken.
	SeqTaken time.Duration
	// Monitor is told about every command; it may be nil.
	Monitor *event.CommandMonitor
	// Dialer connects to the servers; nil: over the network. With a Dialer a test can run its
	// servers in its own process.
	Dialer options.ContextDialer
	Logger *slog.Logger // nil: slog.Default
	Clock  clock.Clock
}

const (
	// DefaultTimeout is short enough for a publisher to wait for, and long enough for a replica set
	// to elect a primary in most cases.
	DefaultTimeout = 5 * time.Second
	// DefaultLinger is short compared with the time that a batch takes.
	DefaultLinger = time.Millisecond
	// DefaultSeqTaken is many times longer than any request can be on its way.
	DefaultSeqTaken = 24 * time.Hour
)

// Log is an eventlog.Shared. Open makes one.
type Log struct {
	opts   Options
	client *mongo.Client
	db     *mongo.Database
	// beats has connections of its own for the sidecars' beats, which must not wait behind appends.
	beats *mongo.Client

	// ctx ends with Close, and with it the goroutines that run until then. Operations under way end
	// by themselves, within Options.Timeout.
	ctx    context.Context
	cancel context.CancelFunc

	catalog catalog
	health  atomic.Pointer[error] // the last operation's error; nil: none
	// unmet has, by topic, the write concern that the topic's last append did not meet: the event
	// was stored, but fewer members acknowledged it than the concern asks for. Only topics whose
	// policy names a number of members are in it.
	unmet       sync.Map
	serverClock serverClock
	causal      causality
	fences      fences
	unsent      signalQueue
	topology    topology
	// saves numbers the saves of epochs. It begins with the time, so that an owner can continue
	// with another Log.
	saves   atomic.Int64
	savings batcher[*saving]

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup

	// setup holds facts about the server. The first operation that reaches it finds them out, and
	// creates missing collections and indexes; nil until then.
	setup     atomic.Pointer[setup]
	setupTurn chan struct{}   // holds one token, for the goroutine that does the setup
	told      map[string]bool // the messages about the setup that were logged already; guarded by setupTurn
	unusable  chan struct{}   // closed once refusal is set
	refusal   error
}

// setup holds the facts about the server that the first operation finds out.
type setup struct {
	server  server
	storeID string
	// unindexed says that the store lacks an index that only makes the log faster.
	unindexed bool
}

// Open makes a log. It does not wait for the server: every operation wraps eventlog.ErrUnavailable
// until the server can be reached. An error is about the URL, except one that wraps
// eventlog.ErrUnavailable: Open looks up the servers of a mongodb+srv URL, and then the name
// service has not answered.
func Open(o Options) (*Log, error) {
	cs, err := connstring.ParseAndValidate(o.URL)
	if err != nil {
		return nil, openError(err, o.URL)
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Linger = cmp.Or(o.Linger, DefaultLinger)
	o.SeqTaken = cmp.Or(o.SeqTaken, DefaultSeqTaken)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	l := &Log{
		opts: o, setupTurn: make(chan struct{}, 1), unusable: make(chan struct{}), told: map[string]bool{}, unsent: signalQueue{id: uuid.NewString()},
		catalog: catalog{topics: map[string]*topic{}}, fences: fences{latest: map[eventlog.GroupPartition]uint64{}},
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.saves.Store(o.Clock.Now().UnixNano())
	elections := &event.ServerMonitor{TopologyDescriptionChanged: l.topology.changed}
	if l.client, err = mongo.Connect(l.clientOptions().SetServerMonitor(elections)); err != nil {
		return nil, openError(err, o.URL)
	}
	l.db = l.client.Database(cmp.Or(cs.Database, DefaultDatabase))
	if l.beats, err = mongo.Connect(l.clientOptions().SetMinPoolSize(0).SetMaxPoolSize(beatConnections)); err != nil {
		_ = l.client.Disconnect(context.Background()) // it has not been used
		return nil, openError(err, o.URL)
	}
	return l, nil
}

const (
	// beatConnections allow one beat under way, and one that replaces it.
	beatConnections = 2
	// maxConnections applies if the URL names no other number. An operation holds a connection for
	// one command at a time, and a command that finds none waits until one is free.
	maxConnections = 16
	// minConnections leaves operations some connections for any URL: followers of signals hold one
	// each.
	minConnections = signalShards + 4
	// connectionIdle is how long a connection may be idle before it is closed, if the URL names no
	// other time.
	connectionIdle = time.Minute
)

func openError(err error, storeURL string) error {
	message := secrets.Redact(err, storeURL)
	var lookup *net.DNSError
	if errors.As(err, &lookup) && !lookup.IsNotFound {
		return fmt.Errorf("store: %w: %s", eventlog.ErrUnavailable, message)
	}
	return fmt.Errorf("store: %s", message)
}

// clientOptions are the URL's, except for the options that the log's promises require.
func (l *Log) clientOptions() *options.ClientOptions {
	o := mongowatch.ClientOptions(l.opts.URL, "sluice-sidecar "+l.opts.NodeID, l.opts.Timeout, l.opts.Dialer).SetWriteConcern(majorityWrites)
	switch {
	case o.MaxPoolSize == nil && o.MinPoolSize == nil:
		o.SetMaxPoolSize(maxConnections)
	case o.MaxPoolSize == nil:
		o.SetMaxPoolSize(max(maxConnections, *o.MinPoolSize))
	case *o.MaxPoolSize > 0: // 0: any number
		o.SetMaxPoolSize(max(minConnections, *o.MaxPoolSize))
	}
	if o.MaxConnIdleTime == nil {
		o.SetMaxConnIdleTime(connectionIdle)
	}
	if l.opts.Monitor != nil {
		o.SetMonitor(l.opts.Monitor)
	}
	return o
}

var errClosed = fmt.Errorf("the log is closed: %w", eventlog.ErrUnavailable)

// begin starts an operation: it refuses calls after Close and contexts that are over, and makes
// sure that the server is set up. The caller calls end when the operation is over. The context ends
// with the caller's and after Options.Timeout.
func (l *Log) begin(ctx context.Context) (_ context.Context, end func(), _ error) {
	return l.beginWithin(ctx, l.opts.Timeout)
}

// seekTimeout is how long a Seek may take: it may have to go through a large part of a topic.
func (l *Log) seekTimeout() time.Duration { return 12 * l.opts.Timeout }

// beginWithin is begin with another timeout.
func (l *Log) beginWithin(ctx context.Context, timeout time.Duration) (_ context.Context, end func(), _ error) {
	return l.beginAs(ctx, func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := l.opts.Clock.WithTimeoutCause(ctx, timeout, eventlog.ErrTimeout)
		return ctx, cancel
	})
}

// beginSteps is begin for an operation of many steps. Each call of renew begins Options.Timeout
// again, so that a slow server that makes progress does not count as away.
func (l *Log) beginSteps(ctx context.Context) (_ context.Context, renew, end func(), err error) {
	var timer clock.Timer
	ctx, end, err = l.beginAs(ctx, func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(ctx)
		timer = l.opts.Clock.AfterFunc(l.opts.Timeout, func() { cancel(eventlog.ErrTimeout) })
		return ctx, func() {
			timer.Stop()
			cancel(nil)
		}
	})
	return ctx, func() { timer.Reset(l.opts.Timeout) }, end, err
}

// beginAs begins an operation with the context that limited makes.
func (l *Log) beginAs(ctx context.Context, limited func(context.Context) (context.Context, func())) (_ context.Context, end func(), _ error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if !l.join() {
		return nil, nil, errClosed
	}
	ctx, cancel := limited(ctx)
	end = func() {
		cancel()
		l.calls.Done()
	}
	if l.setup.Load() == nil {
		if err := l.prepare(ctx); err != nil {
			end()
			return nil, nil, err
		}
	}
	return ctx, end, nil
}

// unavailable is the error of an operation that the network or the server made fail; ctx is
// begin's. If the caller's context has ended, the error is its cause.
func (l *Log) unavailable(ctx context.Context, op string, err error) error {
	_, broken := errors.AsType[*document.Error](err)
	if broken || errors.Is(err, eventlog.ErrNotFound) { // the server has answered
		l.reached()
		return fmt.Errorf("%s: %w", op, err)
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, eventlog.ErrTimeout):
		err = fmt.Errorf("%s: %w: %w: %w%s", op, eventlog.ErrUnavailable, cause, err, hint(err))
	case cause != nil:
		return fmt.Errorf("%s: %w", op, cause)
	default:
		err = fmt.Errorf("%s: %w: %w%s", op, eventlog.ErrUnavailable, err, hint(err))
	}
	l.health.Store(&err)
	return err
}

// hint is advice about an error that does not go away by itself.
func hint(err error) string {
	switch {
	case hasCode(err, codeUnauthorized):
		return " (the user in the store's URL needs the role readWrite on its database)"
	case hasCode(err, codeAuthenticationFailed):
		return " (the user or password in the store's URL is wrong)"
	case hasCode(err, codeNoMajorityReads):
		return " (the server runs with enableMajorityReadConcern off, which the log cannot use)"
	}
	return ""
}

// Close waits for the operations under way, ends the log's goroutines, and closes the connections.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.calls.Wait()
	l.sendLast()
	return errors.Join(mongowatch.Disconnect(l.client, l.opts.Clock, l.opts.Timeout), mongowatch.Disconnect(l.beats, l.opts.Clock, l.opts.Timeout))
}
