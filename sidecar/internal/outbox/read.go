package outbox

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/mongowatch"
)

const (
	// pageDocuments and pageBytes bound a page, as wire.Event.Size counts.
	pageDocuments = 1000
	pageBytes     = 8 << 20
	// keysBatch is how many documents' keys the server sends at once, if most of the documents are
	// for other drainers.
	keysBatch = 5000
	// pagesInMemory bounds the pages that are read and not yet marked.
	pagesInMemory = 4
	// restOutOfOrder is how long a key rests after its documents were found out of order.
	restOutOfOrder = 100 * time.Millisecond
	// sweepAtLeast is how long a sweep continues to publish before it gives way to one that begins
	// with the topics and keys that have rested enough.
	sweepAtLeast = 250 * time.Millisecond
)

// reader reads the pending documents of some shards for one sweep.
//
// With all shards it reads whole documents. With a part of them it reads only the placing fields of
// each document, and then the documents of its shards whole.
type reader struct {
	d      *Drainer
	shards shardSet
	began  time.Time
	pages  chan []*entry // of some documents each, in order

	recent [pagesInMemory]map[string]bool // the latest pages' documents, by rawID

	first time.Time // when the first page was ready
	found int       // documents in the shards, resting ones too
	chunk int       // how many documents are read whole at once
}

// inOrder is the one order in which documents are published.
var inOrder = bson.D{{Key: fieldTS, Value: 1}, {Key: fieldID, Value: 1}}

// placing are the fields that newEntry reads.
var placing = bson.D{{Key: fieldEventID, Value: 1}, {Key: fieldTopic, Value: 1}, {Key: fieldKey, Value: 1}, {Key: fieldAfter, Value: 1}}

// read sends pages until everything was read, or there is reason to begin again. The cursor stays
// open, so the next page does not pass again over documents that rest or are for others.
func (r *reader) read(ctx context.Context) error {
	whole := r.shards == allShards
	find := options.Find().SetSort(inOrder).SetBatchSize(pageDocuments)
	if !whole {
		find.SetProjection(placing).SetBatchSize(keysBatch)
		r.chunk = pageDocuments
	}
	session, err := r.d.outbox.Database().Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(r.d.grace)
	ctx = mongo.NewSessionContext(ctx, session)
	cursor, err := r.d.find(ctx, bson.D{{Key: fieldStatus, Value: statusPending}}, find)
	if err != nil {
		return err
	}
	defer cursor.Close(r.d.grace) // an error says that the server has closed it
	for {
		entries, more, err := r.fill(ctx, cursor, whole)
		if err == nil {
			entries, err = r.holdBack(ctx, entries)
		}
		if err != nil {
			return err
		}
		for len(entries) > 0 {
			now := entries
			if entries = nil; !whole {
				if now, entries, err = r.readWhole(ctx, now); err != nil {
					return err
				}
			}
			if !r.send(ctx, now) {
				return nil
			}
		}
		if !more || ctx.Err() != nil {
			return nil
		}
	}
}

// find is the collection's Find within operationTimeout.
func (d *Drainer) find(ctx context.Context, filter bson.D, o *options.FindOptionsBuilder) (*mongo.Cursor, error) {
	ctx, cancel := d.cfg.Clock.WithTimeout(ctx, operationTimeout)
	defer cancel()
	return d.outbox.Find(ctx, filter, o)
}

// fill reads up to a page. It never waits for the server once it has something.
func (r *reader) fill(ctx context.Context, cursor *mongo.Cursor, whole bool) (entries []*entry, more bool, err error) {
	size := 0
	for len(entries) < pageDocuments && size < pageBytes {
		if len(entries) > 0 && cursor.RemainingBatchLength() == 0 {
			break
		}
		if !mongowatch.Next(ctx, r.d.cfg.Clock, cursor, operationTimeout) {
			return entries, false, cursor.Err()
		}
		e := newEntry(cursor.Current)
		if !r.shards.has(e.shard) {
			continue
		}
		r.found++
		if r.d.rests.resting(e) {
			continue
		}
		if whole {
			e.readWhole(cursor.Current, r.d.cfg.Limits)
			size += e.size
		}
		entries = append(entries, e)
	}
	return entries, true, nil
}

// holdBack leaves out documents that the cursor has found without the one before them in their
// chain: that one became visible after the cursor had passed its place, and the next sweep finds
// both. holdBack queries for it after it has seen the documents behind it, in a causally consistent
// session.
func (r *reader) holdBack(ctx context.Context, entries []*entry) ([]*entry, error) {
	copy(r.recent[1:], r.recent[:])
	seen := make(map[string]bool, len(entries))
	r.recent[0] = seen
	behind := map[string]*entry{} // by rawID of the document before
	var ids bson.A
	for _, e := range entries {
		if e.after.Type != 0 && !slices.ContainsFunc(r.recent[:], func(page map[string]bool) bool { return page[rawID(e.after)] }) {
			behind[rawID(e.after)] = e
			ids = append(ids, e.after)
		}
		seen[e.rawID()] = true
	}
	if len(ids) == 0 {
		return entries, nil
	}
	filter := bson.D{
		{Key: fieldID, Value: bson.D{{Key: "$in", Value: ids}}},
		{Key: fieldStatus, Value: statusPending},
	}
	cursor, err := r.d.find(ctx, filter, options.Find().SetProjection(bson.D{{Key: fieldID, Value: 1}}).SetBatchSize(int32(len(ids)+1)))
	if err != nil {
		return nil, err
	}
	defer cursor.Close(r.d.grace) // an error says that the server has closed it
	for mongowatch.Next(ctx, r.d.cfg.Clock, cursor, operationTimeout) {
		if e := behind[rawID(cursor.Current.Lookup(fieldID))]; e != nil {
			r.d.rests.entry(e, r.d.cfg.Clock.Now().Add(restOutOfOrder))
		}
	}
	return slices.DeleteFunc(entries, r.d.rests.resting), cursor.Err()
}

// readWhole reads some of the documents whole, from the first one on, and returns the rest. It
// leaves out documents that are no longer pending. It reads fewer at once if the documents are too
// large for one page.
func (r *reader) readWhole(ctx context.Context, entries []*entry) (read, rest []*entry, err error) {
	for {
		n := min(r.chunk, len(entries))
		fits, err := r.readSome(ctx, entries[:n])
		if err != nil {
			return nil, nil, err
		}
		if !fits {
			r.chunk = max(1, n/2)
			continue
		}
		r.chunk = min(2*r.chunk, pageDocuments)
		for _, e := range entries[:n] {
			if e.size > 0 {
				read = append(read, e)
			}
		}
		return read, entries[n:], nil
	}
}

// readSome reports false if the documents do not fit into one page.
func (r *reader) readSome(ctx context.Context, entries []*entry) (fits bool, err error) {
	byRawID := make(map[string]*entry, len(entries))
	ids := make(bson.A, len(entries))
	for i, e := range entries {
		byRawID[e.rawID()] = e
		ids[i] = e.id
		e.size = 0
	}
	filter := bson.D{{Key: fieldID, Value: bson.D{{Key: "$in", Value: ids}}}, {Key: fieldStatus, Value: statusPending}}
	cursor, err := r.d.find(ctx, filter, options.Find().SetBatchSize(pageDocuments))
	if err != nil {
		return false, err
	}
	defer cursor.Close(r.d.grace) // an error says that the server has closed it
	size := 0
	for mongowatch.Next(ctx, r.d.cfg.Clock, cursor, operationTimeout) {
		id := cursor.Current.Lookup(fieldID)
		e := byRawID[rawID(id)]
		if e == nil {
			continue // another document: its _id is equal, of another type
		}
		e.readWhole(cursor.Current, r.d.cfg.Limits)
		if size += e.size; size > pageBytes && len(entries) > 1 {
			return false, nil
		}
	}
	return true, cursor.Err()
}

// send sends a page, and reports whether to read on.
func (r *reader) send(ctx context.Context, entries []*entry) bool {
	if len(entries) == 0 {
		return true
	}
	if r.first.IsZero() {
		r.first = r.d.cfg.Clock.Now()
	}
	select {
	case r.pages <- entries:
	case <-ctx.Done():
		return false
	}
	return !r.shouldRestart()
}

// shouldRestart reports whether a document at the front can be published again, and this sweep has
// published for at least as long as it took to get to the first page. So repeated sweeps still
// reach the documents further on.
func (r *reader) shouldRestart() bool {
	now := r.d.cfg.Clock.Now()
	if now.Sub(r.first) < max(sweepAtLeast, r.first.Sub(r.began)) {
		return false
	}
	at, resting := r.d.rests.next()
	fresh := r.d.usable() & (allShards&^r.shards | r.d.rests.passedOver())
	return resting && !now.Before(at) || fresh != 0
}
