// Package mongostore is the policy store of any number of control planes: five collections in a
// MongoDB database.
//
// Collection sluice_policy_commits has a document for each commit:
//
//	{_id: 7, format: 1, at: Date, by: "alice", token: "…",
//	 changes: [{name: "orders.*", version: 2, action: "updated", policy: "{…}", to: 1}]}
//
// _id is the revision (int64), and its unique insert is the only compare-and-set. A policy is JSON
// text, since BSON does not allow every name of a member. Before revision n is inserted, n-1 is
// read at majority, so that n-1 precedes n in the store's own history, and every reader of n can
// read n-1.
//
// Collection sluice_controlplanes has a document for each control plane:
//
//	{_id: "its name", beat: 17, doc: BinData, left: true, left_at: Date}
//
// Collection sluice_sidecars has a document for each sidecar of the roster:
//
//	{_id: "its key", life: "…", doc: BinData, left: "an earlier life", left_at: Date}
//
// Collection sluice_controlplane_secrets has a document for each secret that the control planes
// share; no other user may read it:
//
//	{_id: "peers", secret: BinData}
//
// Collection sluice_usage has a document for each day and control plane:
//
//	{_id: "2026-01-31\nits name", day: "2026-01-31", writer: "its name", number: 17, doc: BinData}
//
// A request may be carried out long after its sender has given up. So a Put replaces only a lower
// beat, and a PutUsage a lower number, and the mark of a removed control plane or sidecar stays for leftKept: an earlier Put does
// not restore its document.
package mongostore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/internal/secrets"
)

const (
	// DefaultDatabase is the database of a URL without one.
	DefaultDatabase = "sluice"
	// DefaultTimeout is mostly enough for a replica set to elect a primary.
	DefaultTimeout = 5 * time.Second
	// closeTimeout bounds the time in which Close tells the server, which would notice by itself.
	closeTimeout = time.Second

	commitsName  = "sluice_policy_commits"
	presenceName = "sluice_controlplanes"
	rosterName   = "sluice_sidecars"
	secretsName  = "sluice_controlplane_secrets"
	usageName    = "sluice_usage"
)

// Options are the options of a store.
type Options struct {
	// URL is a MongoDB connection string. Its path names the database.
	URL string
	// Name identifies the client in MongoDB's own logs; at most 128 bytes count.
	Name string
	// Timeout bounds one operation; 0: DefaultTimeout.
	Timeout time.Duration
	Dialer  options.ContextDialer // nil: the network
}

// Store is a [store.Backend], and has the documents in which
// the control planes of the store exchange their states. It is safe for concurrent use.
type Store struct {
	timeout  time.Duration
	client   *mongo.Client
	commits  *mongo.Collection
	presence *mongo.Collection
	roster   *mongo.Collection
	secrets  *mongo.Collection
	usage    *mongo.Collection

	// ctx ends with Close, and so do the operations under way.
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	// grown is closed when a commit was appended through this store, and by Close.
	grown chan struct{}
	calls sync.WaitGroup
	beats map[string]int64 // the last beat that Put has sent, by control plane
}

// Open creates a store. It does not wait for the server: every operation wraps store.ErrUnavailable
// until the server can be reached. An error is one of the URL, unless it wraps
// store.ErrUnavailable: the servers of a mongodb+srv URL are resolved here, and the name service
// does not answer.
func Open(o Options) (*Store, error) {
	cs, err := connstring.ParseAndValidate(o.URL)
	if err != nil {
		return nil, openError(err, o.URL)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	database := cs.Database
	if database == "" {
		database = DefaultDatabase
	}
	client, err := mongo.Connect(mongowatch.ClientOptions(o.URL, o.Name, o.Timeout, o.Dialer).
		SetReadConcern(readconcern.Majority()).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: new(true)}))
	if err != nil {
		return nil, openError(err, o.URL)
	}
	s := &Store{timeout: o.Timeout, client: client, grown: make(chan struct{}), beats: map[string]int64{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	db := client.Database(database)
	s.commits, s.presence, s.roster = db.Collection(commitsName), db.Collection(presenceName), db.Collection(rosterName)
	s.secrets, s.usage = db.Collection(secretsName), db.Collection(usageName)
	return s, nil
}

func openError(err error, url string) error {
	message := secrets.Redact(err, url)
	var lookup *net.DNSError
	if errors.As(err, &lookup) && !lookup.IsNotFound {
		return fmt.Errorf("policy store: %w: %s", store.ErrUnavailable, message)
	}
	return fmt.Errorf("policy store: %s", message)
}

var (
	errClosed = fmt.Errorf("%w: it is closed", store.ErrUnavailable)
	// errTimeout is the cause of an operation's context that took too long.
	errTimeout = errors.New("no answer in time")
)

// begin starts every operation. Its context ends with the caller's, with Close and after the
// timeout; end must be called when the operation is over.
func (s *Store) begin(ctx context.Context) (_ context.Context, end func(), _ error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	s.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(s.ctx, func() { cancel(errClosed) })
	ctx, stop := context.WithTimeoutCause(ctx, s.timeout, errTimeout)
	return ctx, func() {
		stop()
		unlink()
		cancel(nil)
		s.calls.Done()
	}, nil
}

// all reads the selected documents of a collection, ascending by _id.
func all[D any](ctx context.Context, s *Store, c *mongo.Collection, op string, selected bson.E) (found []D, _ error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	cursor, err := c.Find(ctx, bson.D{selected}, options.Find().SetSort(byID(1)))
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	if err != nil {
		return nil, failed(ctx, op, err)
	}
	return found, nil
}

// Ping reports whether the server can be reached.
func (s *Store) Ping(ctx context.Context) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := s.client.Ping(ctx, nil); err != nil {
		return failed(ctx, "ping the policy store", err)
	}
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.cancel()
	close(s.grown)
	s.grown = make(chan struct{})
	s.mu.Unlock()
	s.calls.Wait()
	return mongowatch.Disconnect(s.client, clock.System(), min(s.timeout, closeTimeout))
}
