package capture

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/source"
)

// Source is a collection, and the topic that its changes are published to.
type Source struct {
	URL                  string // a MongoDB connection string
	Database, Collection string
	Topic                string
}

// Namespace is the collection's name as MongoDB writes it.
func (s Source) Namespace() string { return s.Database + "." + s.Collection }

// name identifies a capture among those of one log. It has no part of the URL, so the servers'
// addresses may change.
func (s Source) name() string { return s.Namespace() + "=" + s.Topic }

var errSource = errors.New("must be DATABASE.COLLECTION, in the MongoDB of --store, or a MongoDB connection string that " +
	"names the database, '#' and the collection, like mongodb://host/shop#orders; =TOPIC behind it names the topic")

// ParseSource reads a source: DATABASE.COLLECTION, which is in the store, or URL#COLLECTION. '='
// and the topic may follow; the default topic is DATABASE.COLLECTION. The error has no part of a
// URL.
func ParseSource(text, store string) (Source, error) {
	s := Source{URL: store}
	connection, collection, hasURL := strings.Cut(text, "#")
	if !hasURL {
		s.Database, collection, _ = strings.Cut(text, ".")
	}
	s.Collection, s.Topic, _ = strings.Cut(collection, "=")
	switch {
	case hasURL && !setting.IsMongoDB(connection), setting.IsMongoDB(text) && !hasURL:
		return s, errSource
	case hasURL:
		s.URL, s.Database = connection, DatabaseOf(connection)
	case !setting.IsMongoDB(store):
		return s, fmt.Errorf("%q is in the MongoDB of --store, and --store is not in MongoDB: give a connection string, like "+
			"mongodb://host/shop#orders", text)
	}
	if s.Database == "" || s.Collection == "" || strings.ContainsAny(s.Database, "/\\ \"$\x00") || strings.ContainsAny(s.Collection, "$\x00") {
		return s, errSource
	}
	if s.Topic == "" {
		s.Topic = s.Namespace()
	}
	if err := codec.CheckTopic(s.Topic); err != nil {
		return s, fmt.Errorf("%s; name another one with =TOPIC", err.Msg)
	}
	return s, nil
}

// DatabaseOf is the database that a connection string names; "": none.
func DatabaseOf(connection string) string {
	_, rest, _ := strings.Cut(connection, "://")
	rest, _, _ = strings.Cut(rest, "?")
	_, path, _ := strings.Cut(rest, "/")
	name, err := url.PathUnescape(path)
	if err != nil {
		return path
	}
	return name
}

// Config is what a Capture needs.
type Config struct {
	Source    Source
	Store     string // the URL of the log's MongoDB, which keeps the place in the collection Places; "": File does
	Database  string // of the log there
	File      string // of one sidecar alone; captures share it
	NodeID    string // the sidecar's, part of the application's name at the servers
	Publisher source.Publisher
	Roster    *roster.Roster // of the sidecars on the log, not run yet

	Limits   wire.Limits // of an event and of a batch
	Logger   *slog.Logger
	Observer source.Observer
	Dialer   options.ContextDialer // nil: the network
	Clock    clock.Clock
}
