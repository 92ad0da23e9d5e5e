package outbox

import (
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// mark is the outcome to write into a document.
type mark struct {
	e       *entry
	receipt wire.Receipt // the place of the event in the log
	err     *wire.Error  // nil: it is published
	final   bool         // with err: it is not tried again
}

const (
	// restUnmarked is how long a topic rests after one of its documents was published and could not
	// be marked.
	restUnmarked = 10 * time.Second
	// maxLogged bounds the log's lines about the documents of one page.
	maxLogged = 10
)

// mark writes the outcomes of a page to its documents, in one command, and returns how many it
// could mark. It tries until the server answers, or until the time for stopping is over: then the
// documents are published once more, as duplicates.
func (d *Drainer) mark(marks []mark) (marked int) {
	if len(marks) == 0 {
		return 0
	}
	now := d.cfg.Clock.Now()
	models := make([]mongo.WriteModel, len(marks))
	for i := range marks {
		models[i] = marks[i].model(now)
	}
	retry := pause.Backoff{First: pollMin, Most: 5 * pollMax}
	for {
		refused, err := d.write(models)
		if err == nil {
			var first error
			for _, first = range refused {
				break
			}
			d.state.observe("marks", first)
			return d.count(marks, refused)
		}
		d.state.observe("marks", err)
		if !d.cfg.Clock.SleepUnless(d.grace, retry.Step(), nil) {
			return 0
		}
	}
}

// write returns the updates that the server refused, by index, or an error if the outcome is not
// known.
func (d *Drainer) write(models []mongo.WriteModel) (refused map[int]error, err error) {
	ctx, cancel := d.cfg.Clock.WithTimeout(d.grace, operationTimeout)
	defer cancel()
	_, err = d.outbox.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) && bulk.WriteConcernError == nil && len(bulk.WriteErrors) > 0 {
		refused = make(map[int]error, len(bulk.WriteErrors))
		for _, e := range bulk.WriteErrors {
			refused[e.Index] = e
		}
		return refused, nil
	}
	return nil, err
}

// model is the update of one document. If possible its filter is only the _id.
func (m *mark) model(now time.Time) mongo.WriteModel {
	filter := bson.D{{Key: fieldID, Value: m.e.id}}
	set := bson.D{}
	update := bson.D{}
	if m.err == nil {
		set = append(set, bson.E{Key: fieldStatus, Value: statusDone}, bson.E{Key: fieldDoneAt, Value: now})
		if m.receipt.Seq > 0 { // 0: it is scheduled
			set = append(set, bson.E{Key: fieldSeq, Value: int64(m.receipt.Seq)}, bson.E{Key: fieldPartition, Value: m.receipt.Partition})
		}
		if m.e.attempts > 0 {
			update = bson.D{{Key: "$unset", Value: bson.D{{Key: fieldError, Value: ""}, {Key: fieldFailedAt, Value: ""}}}}
		}
	} else {
		// A later failure stays: this update may be executed after its sender gave up.
		filter = append(filter, bson.E{Key: fieldStatus, Value: statusPending},
			bson.E{Key: fieldAttempts, Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: m.e.attempts}}}}})
		if m.final {
			set = append(set, bson.E{Key: fieldStatus, Value: statusError})
		}
		set = append(set, bson.E{Key: fieldError, Value: m.err.Error()},
			bson.E{Key: fieldAttempts, Value: m.e.attempts + 1}, bson.E{Key: fieldFailedAt, Value: now})
	}
	return mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(append(update, bson.E{Key: "$set", Value: set}))
}

// count counts and logs the outcomes of a page, and returns how many documents were marked.
func (d *Drainer) count(marks []mark, refused map[int]error) (marked int) {
	done, logged := 0, 0
	for i := range marks {
		m := &marks[i]
		if err := refused[i]; err != nil {
			// Without a rest it would be published over and over, always as a duplicate.
			d.rests.topic(m.e.topic, nil, d.cfg.Clock.Now().Add(restUnmarked))
			continue
		}
		marked++
		if m.err == nil {
			done++
			continue
		}
		if m.final {
			d.failed.Add(1)
			d.cfg.Observer.Failed(m.err.Code)
		}
		if logged++; logged <= maxLogged {
			d.log(m)
		}
	}
	if logged > maxLogged {
		d.cfg.Logger.Warn("more documents of the outbox were not published", "documents", logged-maxLogged)
	}
	if done > 0 {
		d.published.Add(int64(done))
		d.cfg.Observer.Published(done)
	}
	return marked
}

func (d *Drainer) log(m *mark) {
	id := m.e.id.String()
	if m.final {
		d.cfg.Logger.Error("a document of the outbox cannot be published", "_id", id, "topic", m.e.topic, "error", m.err)
	} else {
		d.cfg.Logger.Warn("a document of the outbox was not published; it is tried again", "_id", id, "topic", m.e.topic, "error", m.err)
	}
}
