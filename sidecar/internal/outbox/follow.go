package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	// followAwait is how long the server waits for a change before it answers that there is none.
	followAwait = 5 * time.Second
	// followRetry is the wait before the next try on a server that gives no change stream: it is no
	// replica set, or does not let this user follow one.
	followRetry = time.Minute
)

// pendingAgain selects the changes that make documents pending.
var pendingAgain = mongo.Pipeline{
	{{Key: "$match", Value: bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{"insert", "replace"}}}}},
		bson.D{{Key: "updateDescription.updatedFields." + fieldStatus, Value: statusPending}},
	}}}}},
	{{Key: "$project", Value: bson.D{{Key: "operationType", Value: 1}}}},
}

// follow wakes the pump when documents become pending, where the server has change streams, until
// ctx ends. A change is a hint: the pump finds documents by their status, so a stream that breaks
// costs only time, and the pump looks after each start of a stream.
func (d *Drainer) follow(ctx context.Context) {
	retry := pause.Backoff{First: pollMin, Most: 5 * pollMax}
	for ctx.Err() == nil {
		followed, err := d.followOne(ctx)
		d.following.Store(false)
		d.wake.Set()
		if followed {
			retry.Reset()
		}
		rest := retry.Step()
		var server mongo.ServerError
		switch isServer := errors.As(err, &server); {
		case ctx.Err() != nil:
			return
		case mongowatch.PlaceLost(err):
			d.cfg.Observer.PlaceLost()
			d.cfg.Logger.Warn("the outbox's change stream has lost its place in the oplog: everything that is pending is read, "+
				"and a new stream followed", "error", err)
		case isServer && !followed && !passes(server):
			d.cfg.Logger.Info("the outbox is polled, since its server gives no change stream", "every", pollMax.String(), "error", err)
			rest = followRetry
		case err != nil:
			d.cfg.Logger.Info("the outbox's change stream has ended; another one follows", "error", err)
		}
		d.cfg.Clock.SleepUnless(ctx, rest, nil)
	}
}

// passes reports whether the error is of a server that is electing or stopping, and not of one
// without change streams.
func passes(err mongo.ServerError) bool {
	return slices.ContainsFunc([]string{"ResumableChangeStreamError", "RetryableWriteError", "NetworkError"}, err.HasErrorLabel) ||
		slices.ContainsFunc([]int{codeNotPrimary, codeNotPrimaryNoSecondary, codeInterrupted}, err.HasErrorCode)
}

// followOne opens a stream and follows it to its end.
func (d *Drainer) followOne(ctx context.Context) (followed bool, _ error) {
	stream, err := d.watch(ctx)
	if err != nil {
		return false, err
	}
	defer stream.Close(d.grace) // an error says that the server has closed it
	d.following.Store(true)
	d.wake.Set() // for what was inserted before
	for {
		more, err := mongowatch.NextChange(ctx, d.cfg.Clock, stream, followAwait+operationTimeout)
		switch {
		case err != nil:
			return true, err
		case more:
			d.wake.Set()
		case stream.ID() == 0:
			return true, errors.New("the collection was dropped or renamed")
		}
	}
}

func (d *Drainer) watch(ctx context.Context) (*mongo.ChangeStream, error) {
	ctx, cancel := d.cfg.Clock.WithTimeout(ctx, operationTimeout)
	defer cancel()
	return d.outbox.Watch(ctx, pendingAgain, options.ChangeStream().SetMaxAwaitTime(followAwait))
}
