package mongowatch

import (
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

// ClientOptions are the options that a URL sets, except for those that no program of ours
// leaves to it: clients name their application, read from the primary, and give a server up
// after a timeout. A nil dialer stands for the network.
func ClientOptions(url, app string, timeout time.Duration, dialer options.ContextDialer) *options.ClientOptions {
	const maxAppName = 128 // bytes, MongoDB's
	o := options.Client().ApplyURI(url).
		SetAppName(app[:min(len(app), maxAppName)]).
		SetServerSelectionTimeout(timeout).
		SetConnectTimeout(timeout).
		SetReadPreference(readpref.Primary())
	if dialer != nil {
		o.SetDialer(dialer)
	}
	return o
}

// PlaceLost reports whether a server says that its oplog no longer has the place at which a
// change stream is to go on: ChangeStreamFatalError or ChangeStreamHistoryLost.
func PlaceLost(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && (server.HasErrorCode(280) || server.HasErrorCode(286))
}
