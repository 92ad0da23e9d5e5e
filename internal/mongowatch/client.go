package mongowatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/sluice-bus/sluice/internal/clock"
)

// ClientOptions are the options of a URL, except for those that our programs always set themselves:
// the application's name, reads from the primary, the timeouts of connecting and of selecting a
// server, and slog for what the driver logs. A nil dialer stands for the network.
func ClientOptions(url, app string, timeout time.Duration, dialer options.ContextDialer) *options.ClientOptions {
	const maxAppName = 128 // bytes, MongoDB's
	o := options.Client().ApplyURI(url).
		SetAppName(app[:min(len(app), maxAppName)]).
		SetServerSelectionTimeout(timeout).
		SetConnectTimeout(timeout).
		SetReadPreference(readpref.Primary()).
		SetLoggerOptions(options.Logger().SetSink(driverLog{}))
	if dialer != nil {
		o.SetDialer(dialer)
	}
	return o
}

// Disconnect closes a client's connections, and ends its sessions if the server answers within the
// given time. The caller's operations have ended. The driver takes no deadline from here: with one
// it spins, without a pause, while a connection is in use, also one that only waits for a late
// answer.
func Disconnect(client *mongo.Client, c clock.Clock, within time.Duration) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer c.AfterFunc(within, cancel).Stop()
	return client.Disconnect(ctx)
}

// PlaceLost reports whether a server says that its oplog no longer has the place at which a change
// stream is to go on: ChangeStreamFatalError or ChangeStreamHistoryLost.
func PlaceLost(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && (server.HasErrorCode(280) || server.HasErrorCode(286))
}

// Next moves a cursor on, as its own Next does, and gives the server no longer than timeout to send
// more documents.
func Next(ctx context.Context, c clock.Clock, cursor *mongo.Cursor, timeout time.Duration) bool {
	if cursor.RemainingBatchLength() == 0 {
		timed, cancel := c.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = timed
	}
	return cursor.Next(ctx)
}

// NextChange waits for a change as a stream's TryNext does. It returns an error if the server does
// not answer within timeout, which has to be longer than the stream's MaxAwaitTime.
func NextChange(ctx context.Context, c clock.Clock, stream *mongo.ChangeStream, timeout time.Duration) (more bool, err error) {
	timed, cancel := c.WithTimeout(ctx, timeout)
	defer cancel()
	more = stream.TryNext(timed)
	switch err = stream.Err(); {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err == nil && timed.Err() != nil:
		err = fmt.Errorf("the server has not answered for %v", timeout)
	}
	return more, err
}
