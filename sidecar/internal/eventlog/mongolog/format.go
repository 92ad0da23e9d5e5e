package mongolog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// storeFormat numbers the rules by which sidecars share a store. Sidecars with different numbers
// may not use one store at a time. The number is in the store's document in meta. Sidecars of
// format 3 publish to topics that are deleted, and sidecars of format 2 do not enter their changes
// in the roll; versions that appended without reservations wrote no number, and check none.
const storeFormat = 4

// quietFor is the silence after which sidecars of an older version count as stopped. It is several
// times the longest pause between two of their beats.
const quietFor = 30 * time.Second

var errLastOlder = errors.New("the store was last used by an older version")

// meta is the store's own document.
type meta struct {
	StoreID string `bson:"id"`
	Format  int    `bson:"format"`
}

// older holds observations of a store of an older format: since when this sidecar watches its
// nodes, and their last beats.
type older struct {
	since time.Time
	beats map[string]int64
}

// ensureMeta reads the store's document, which the first sidecar on it inserts, and refuses a store
// that this version must not use. The caller holds the setup turn.
func (l *Log) ensureMeta(ctx context.Context) (meta, error) {
	coll := l.db.Collection(l.opts.Prefix+metaName, options.Collection().SetWriteConcern(majorityWrites))
	_, err := coll.InsertOne(ctx, bson.D{{Key: "_id", Value: "store"}, {Key: "id", Value: uuid.NewString()}, {Key: "format", Value: storeFormat}})
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return meta{}, err
	}
	for {
		var m meta
		if err := coll.FindOne(ctx, byID("store")).Decode(&m); err != nil {
			return meta{}, err
		}
		switch {
		case m.Format == storeFormat:
			return m, nil
		case m.Format > storeFormat:
			return meta{}, fmt.Errorf("the store has format %d, and this version is for %d: run the version of the other sidecars, or stop them all and update them", m.Format, storeFormat)
		}
		if err := l.refuseOlderNodes(ctx); err != nil {
			return meta{}, err
		}
		before := append(byID("store"), bson.E{Key: "format", Value: nil})
		if m.Format > 0 {
			before[1].Value = m.Format
		}
		if _, err := coll.UpdateOne(ctx, before, bson.D{{Key: "$set", Value: bson.D{{Key: "format", Value: storeFormat}}}}); err != nil {
			return meta{}, err
		}
		l.opts.Logger.Info("the store now has this version's format", "format", storeFormat)
	}
}

// awaitOlderNodes is ensureMeta, and waits until it is known whether sidecars of an older version
// are alive.
func (l *Log) awaitOlderNodes(ctx context.Context) error {
	l.setupTurn <- struct{}{}
	defer func() { <-l.setupTurn }()
	for {
		_, err := l.ensureMeta(ctx)
		if !errors.Is(err, errLastOlder) || !l.opts.Clock.Sleep(ctx, time.Second) {
			return err
		}
	}
}

// refuseOlderNodes returns nil once the nodes of a store of an older format have been silent for
// quietFor. Their documents have no version, and those of the oldest no state.
func (l *Log) refuseOlderNodes(ctx context.Context) error {
	cursor, err := l.db.Collection(l.opts.Prefix+nodesName).Find(ctx, bson.D{
		{Key: "beat", Value: bson.D{{Key: "$exists", Value: true}}}, {Key: "version", Value: nil}, {Key: "state", Value: bson.D{{Key: "$in", Value: bson.A{nil, isLive.Value}}}}})
	if err != nil {
		return err
	}
	var nodes []nodeDoc
	if err := cursor.All(ctx, &nodes); err != nil {
		return err
	}
	if len(nodes) == 0 {
		return nil
	}
	first := l.older.beats == nil
	if first {
		l.older = older{since: l.opts.Clock.Now(), beats: map[string]int64{}}
	}
	var alive string
	for _, n := range nodes {
		if before, seen := l.older.beats[n.ID]; !first && (!seen || before != n.Beat) {
			alive = n.Name
		}
		l.older.beats[n.ID] = n.Beat
	}
	if alive != "" {
		l.older.since = l.opts.Clock.Now()
		return fmt.Errorf("sidecar %q uses the store with an older version, which is not compatible with this one: stop all sidecars of that version first", alive)
	}
	if left := quietFor - l.opts.Clock.Since(l.older.since); left > 0 {
		return fmt.Errorf("%w: waiting %v for its sidecars (%q, …) to be silent", errLastOlder, left.Round(time.Second), nodes[0].Name)
	}
	return nil
}
