package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Connect makes a store. It does not wait for the server: every operation wraps
// eventlog.ErrUnavailable until the server can be reached. An error is about the URL, except one
// that wraps eventlog.ErrUnavailable: Connect looks up the servers of a mongodb+srv URL, and then
// the name service has not answered.
func Connect(c Config) (*Store, error) {
	cs, err := connstring.ParseAndValidate(c.URL)
	if err != nil {
		return nil, connectError(err, c.URL)
	}
	s := &Store{Config: c, setup: newSetup()}
	s.lasting, s.endLasting = context.WithCancel(context.Background())
	changes := &event.ServerMonitor{TopologyDescriptionChanged: s.topology.changed}
	if s.client, err = mongo.Connect(s.clientOptions().SetServerMonitor(changes)); err != nil {
		return nil, connectError(err, c.URL)
	}
	s.DB = s.client.Database(cmp.Or(cs.Database, c.Database))
	if s.Beats, err = mongo.Connect(s.clientOptions().SetMinPoolSize(0).SetMaxPoolSize(beatConnections)); err != nil {
		_ = s.client.Disconnect(context.Background()) // it has not been used
		return nil, connectError(err, c.URL)
	}
	return s, nil
}

const (
	// beatConnections allow one beat under way, and one that replaces it.
	beatConnections = 2
	// maxConnections applies if the URL names no other number. An operation holds a connection for
	// one command at a time, and a command that finds none waits until one is free.
	maxConnections = 16
	// minConnections leaves operations some connections for any URL: followers of signals hold one
	// each.
	minConnections = SignalShards + 4
	// connectionIdle is how long a connection may be idle before it is closed, if the URL names no
	// other time.
	connectionIdle = time.Minute
)

func connectError(err error, storeURL string) error {
	message := secrets.Redact(err, storeURL)
	var lookup *net.DNSError
	if errors.As(err, &lookup) && !lookup.IsNotFound {
		return fmt.Errorf("store: %w: %s", eventlog.ErrUnavailable, message)
	}
	return fmt.Errorf("store: %s", message)
}

// clientOptions are the URL's, except for the options that the log's promises require. The driver
// does not send writes again: the server would keep a record of each write for that, and for a
// reservation a copy of the whole head. Writes that may be repeated are, by their callers.
func (s *Store) clientOptions() *options.ClientOptions {
	o := mongowatch.ClientOptions(s.URL, "sluice-sidecar "+s.NodeID, s.Timeout, s.Dialer).SetWriteConcern(MajorityWrites).SetRetryWrites(false)
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
	if s.Monitor != nil {
		o.SetMonitor(s.Monitor)
	}
	return o
}
