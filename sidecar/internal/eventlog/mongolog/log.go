// Package mongolog is the shared event log: an eventlog.Shared in one MongoDB database, for any
// number of sidecars. It assembles the parts, each a package of its own:
//
//	core                 the database: operations, sessions, retries, which collections there are
//	setup                checks the server and the format, creates collections and indexes
//	document, events     an event as a document, and the collection of events
//	topics, heads        the catalog, and the order of a topic's events
//	appends, scheduled   events into the log, now or later
//	times                where the events of a time begin
//	reads, removal       events out of the log, and their end
//	epochs               the progress of consumer groups
//	nodes, signals       the sidecars of a store, and their messages
//
// An event's path: appends reserves a seq at its topic's head (heads) and inserts the event there;
// reads returns events, up to the first seq that is missing; removal removes them.
package mongolog

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/appends"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/epochs"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/nodes"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/reads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/removal"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/scheduled"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/setup"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/signals"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// DefaultDatabase is the database of a URL that names none.
const DefaultDatabase = "sluice"

// Options say where a log is and how it is used.
type Options struct {
	// URL is a MongoDB connection string. Its path names the database.
	URL string
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
	// LoneAfter is after how many reservations in a row without a rival's between them the log becomes
	// a topic's lone writer, which needs none. Below 0: never; 0: DefaultLoneAfter.
	LoneAfter int
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
	// DefaultLoneAfter is what ending a claim costs: two writes of the rival, and a reservation of the
	// writer that was alone. So no pattern of appends costs much more than twice the best for it.
	DefaultLoneAfter = 3
	// DefaultSeqTaken is many times longer than any request can be on its way.
	DefaultSeqTaken = 24 * time.Hour
)

// Log is an eventlog.Shared. Open makes one.
type Log struct {
	connection
	catalog
	eventlog.Nodes
	eventlog.Scheduler
	*epochs.Epochs
	*reads.Reader
	*removal.Remover
	*signals.Signals

	store     *core.Store
	appends   *appends.Appender
	scheduled *scheduled.Scheduler
	setup     *setup.Setup
}

// connection is what of core.Store is the log's.
type connection interface {
	Ping(ctx context.Context) error
	Err() error
	Sync(ctx context.Context) error
	StoreID() string
	AwaitRefusal(ctx context.Context) error
}

// catalog is what of topics.Catalog is the log's.
type catalog interface {
	EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error)
	LookupTopic(ctx context.Context, name string) (eventlog.Topic, error)
	Topics(ctx context.Context) ([]eventlog.Topic, error)
	CountTopics(ctx context.Context, by string) (all, own int, err error)
	Deleted(ctx context.Context, names []string) ([]string, error)
	AddDeadLetterTopic(ctx context.Context, topic, letters string) error
	DeadLetterTopics(ctx context.Context, topic string) ([]string, error)
	NamedDeadLetterTopics(ctx context.Context) ([]string, error)
}

// Open makes a log. It does not wait for the server: every operation wraps eventlog.ErrUnavailable
// until the server can be reached. An error is about the URL, except one that wraps
// eventlog.ErrUnavailable: Open looks up the servers of a mongodb+srv URL, and then the name
// service has not answered.
func Open(o Options) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	store, err := core.Connect(core.Config{
		URL: o.URL, Database: DefaultDatabase, NodeID: o.NodeID,
		Timeout: cmp.Or(o.Timeout, DefaultTimeout), SeqTaken: cmp.Or(o.SeqTaken, DefaultSeqTaken),
		Monitor: o.Monitor, Dialer: o.Dialer, Logger: o.Logger, Clock: o.Clock,
	})
	if err != nil {
		return nil, err
	}
	c := topics.New(store)
	h := heads.New(store, c)
	l := &Log{
		connection: store, catalog: c, store: store, setup: setup.New(store), Nodes: nodes.New(store), Signals: signals.New(store),
		Epochs: epochs.New(store, c), Reader: reads.New(store, c, h),
	}
	store.Prepare = l.setup.Prepare
	l.appends = appends.New(appends.Config{
		Store: store, Catalog: c, Heads: h, WriteConcern: o.WriteConcern, Linger: cmp.Or(o.Linger, DefaultLinger),
		LoneAfter: max(cmp.Or(o.LoneAfter, DefaultLoneAfter), 0),
	})
	l.scheduled = scheduled.New(store, c, l.appends)
	l.Scheduler = l.scheduled
	l.Remover = removal.New(store, c, h, l.Reader, l.scheduled)
	return l, nil
}

// Close waits for the operations under way, ends the log's goroutines, hands the claims of lone writers back, and closes the
// connections.
func (l *Log) Close() error {
	return l.store.Close(func() {
		l.appends.HandBack()
		l.SendLast()
	})
}

// UnmetConcerns are, by topic, the write concerns that the topic's last append did not meet, since
// too few members acknowledged it.
func (l *Log) UnmetConcerns() map[string]string { return l.appends.UnmetConcerns() }

// UnsupportedError says why the log can never use a store.
type UnsupportedError = core.UnsupportedError

// Owns reports whether a collection of the log's database belongs to the log.
func Owns(collection string) bool { return core.Owns(collection) }

// Gone implements eventlog.Deleter.
func (l *Log) Gone(ctx context.Context, topics []string, groups []eventlog.GroupName) ([]string, []eventlog.GroupName, error) {
	deleted, err := l.Deleted(ctx, topics)
	if err != nil {
		return nil, nil, err
	}
	missing, err := l.Missing(ctx, groups)
	return deleted, missing, err
}
