package capture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// followAwait is how long the server waits for a change before it answers that there is none.
	followAwait = time.Second
	// pageChanges and pageBytes bound a page of changes; the last change may exceed pageBytes.
	pageChanges = 1000
	pageBytes   = 8 << 20
	// saveEvery is how often the place is saved while there are changes, and saveIdle while there
	// are none: the oplog passes a place that is not saved again.
	saveEvery = 200 * time.Millisecond
	saveIdle  = time.Minute
)

// codeTokenInvalid is the code with which a server refuses a place that is not in its oplog.
const codeTokenInvalid = 260

// wanted are the fields that an event is made of. With the description of an update a change may be
// too large for the stream.
var wanted = mongo.Pipeline{{{Key: "$project", Value: bson.D{
	{Key: "operationType", Value: 1}, {Key: "clusterTime", Value: 1}, {Key: "wallTime", Value: 1},
	{Key: "documentKey", Value: 1}, {Key: "fullDocument", Value: 1},
}}}}

// stoppedError says that the capture needs an operator to go on.
type stoppedError struct {
	why string
	err error // may be nil
}

func (e *stoppedError) Error() string {
	text := e.why + "; to begin again with a re-read, POST /v1/captures/TOPIC/reread"
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *stoppedError) Unwrap() error { return e.err }

// watch opens the stream behind a token, or behind all changes so far.
func (c *Capture) watch(ctx context.Context, token bson.Raw) (*mongo.ChangeStream, error) {
	ctx, cancel := c.cfg.Clock.WithTimeout(ctx, operationTimeout)
	defer cancel()
	o := options.ChangeStream().SetFullDocument(options.UpdateLookup).SetMaxAwaitTime(followAwait).SetBatchSize(pageChanges)
	if token != nil {
		o.SetResumeAfter(token)
	}
	stream, err := c.coll.Watch(ctx, wanted, o)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	return stream, nil
}

// now is the place behind all changes so far.
func (c *Capture) now(ctx context.Context) (token bson.Raw, at time.Time, _ error) {
	at = c.cfg.Clock.Now()
	stream, err := c.watch(ctx, nil)
	if err != nil {
		return nil, at, err
	}
	defer c.release(ctx, stream)
	if token = stream.ResumeToken(); token == nil {
		return nil, at, errors.New("the server gives no resume token before the first change; MongoDB does from 4.0.7 on")
	}
	return token, at, nil
}

// follow publishes the changes of the stream, until it fails or the capture is another sidecar's.
func (c *Capture) follow(ctx context.Context) (followed bool, _ error) {
	p := c.place
	stream, err := c.watch(ctx, p.Token)
	if err != nil {
		return false, err
	}
	defer c.release(ctx, stream)
	defer func() { c.saveLast(ctx, p) }()
	saved, unsaved := c.cfg.Clock.Now(), false // changes behind the saved place are published
	for {
		page, err := c.fill(ctx, stream)
		if err == nil || len(page.items) > 0 {
			followed = true
			c.health.captures()
		}
		if err := c.publish(ctx, page.items); err != nil {
			return followed, err
		}
		if page.token != nil {
			p.Token, p.At = page.token, page.at
			c.health.reached(page.at)
			unsaved = unsaved || len(page.items) > 0
		}
		switch {
		case err != nil:
			return followed, err
		case !c.mine() || c.asked.Load():
			return followed, nil
		}
		every := saveIdle
		if unsaved {
			every = saveEvery
		}
		if c.cfg.Clock.Since(saved) >= every {
			if err := c.save(ctx, p); err != nil {
				p = c.place
				return followed, err
			}
			p, saved, unsaved = c.place, c.cfg.Clock.Now(), false
		}
	}
}

// page is some changes in the order of the stream.
type page struct {
	items []wire.PublishItem
	token bson.Raw  // the place behind them; nil: as before
	at    time.Time // the time of the place, about
}

// fill reads up to a page, and waits for the server only while the page is empty. With an error the
// page is valid as well.
func (c *Capture) fill(ctx context.Context, stream *mongo.ChangeStream) (p page, _ error) {
	for size := 0; len(p.items) < pageChanges && size < pageBytes; {
		if len(p.items) > 0 && stream.RemainingBatchLength() == 0 {
			break
		}
		asked := c.cfg.Clock.Now()
		more, err := mongowatch.NextChange(ctx, c.cfg.Clock, stream, followAwait+operationTimeout)
		switch {
		case err != nil:
			return p, c.explain(ctx, err)
		case !more && stream.ID() == 0:
			return p, &stoppedError{why: "the change stream has ended: the collection may have been dropped or renamed"}
		case !more:
			p.token, p.at = stream.ResumeToken(), asked
			return p, nil
		}
		var x change
		if err := bson.Unmarshal(stream.Current, &x); err != nil {
			return p, fmt.Errorf("reading a change: %w", err)
		}
		switch x.Op {
		case opInsert, opUpdate, opReplace, opDelete:
			it := c.cfg.Source.item(digest("change", x.Token), x.Op, x.at(), x.Key.ID, x.Document, c.cfg.Limits)
			p.items = append(p.items, it)
			size += it.Event.Size()
		case "drop", "rename", "dropDatabase", "invalidate":
			return p, &stoppedError{why: fmt.Sprintf("the collection was dropped or renamed at %s: its documents' events remain, "+
				"and later changes are not captured", stamp(x.at()))}
		}
		p.token, p.at = stream.ResumeToken(), x.at()
	}
	return p, nil
}

// explain says which changes are lost, where the server's error means that some are.
func (c *Capture) explain(ctx context.Context, err error) error {
	var server mongo.ServerError
	switch {
	case mongowatch.PlaceLost(err):
		return &stoppedError{fmt.Sprintf("the place in the oplog is lost: everything up to %s was captured, the oplog begins "+
			"at %s, and the changes in between are unknown",
			stamp(c.place.At), c.oldest(ctx)), err}
	case errors.As(err, &server) && server.HasErrorCode(codeTokenInvalid):
		return &stoppedError{fmt.Sprintf("the server does not know the place; everything up to %s was captured", stamp(c.place.At)), err}
	}
	return err
}

// oldest is the time of the oldest entry of the oplog, for an error.
func (c *Capture) oldest(ctx context.Context) string {
	ctx, cancel := c.cfg.Clock.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	var entry struct {
		TS bson.Timestamp `bson:"ts"`
	}
	o := options.FindOne().SetSort(bson.D{{Key: "$natural", Value: 1}})
	if err := c.coll.Database().Client().Database("local").Collection("oplog.rs").FindOne(ctx, bson.D{}, o).Decode(&entry); err != nil {
		return "a time that this user may not see"
	}
	return stamp(time.Unix(int64(entry.TS.T), 0))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
