package projector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/mongo/internal/majority"
)

// StateCollection is the collection, of the same database, that has a document for each projection,
// by the name of its collection.
const StateCollection = "sluice_projections"

// state is that document.
type state struct {
	Topic string `bson:"topic"`
	Group string `bson:"group"`
	// Positions are the highest events that were applied, by partition. A topic that does not have
	// them has another history.
	Positions map[string]position `bson:"positions"`
	Rebuilds  int64               `bson:"rebuilds"` // that were begun
	Rebuild   *rebuild            `bson:"rebuild"`  // nil: none is under way
}

type position struct {
	Seq int64  `bson:"seq"`
	ID  string `bson:"id"` // of the event
}

// maxLookups bounds the events that one check looks for.
const maxLookups = 16

func states(coll *mongo.Collection) *mongo.Collection {
	return majority.Collection(coll.Database().Collection(StateCollection))
}

func (p *projection) byID() bson.D { return bson.D{{Key: "_id", Value: p.coll.Name()}} }

// load reads the state, and writes it where there is none.
func (p *projection) load(ctx context.Context) (s state, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err = p.states.FindOne(ctx, p.byID()).Decode(&s)
	if errors.Is(err, mongo.ErrNoDocuments) {
		_, err = p.states.InsertOne(ctx, append(p.byID(), bson.E{Key: "topic", Value: p.cfg.Topic}, bson.E{Key: "group", Value: p.cfg.Group}))
		if err == nil || mongo.IsDuplicateKeyError(err) {
			err = p.states.FindOne(ctx, p.byID()).Decode(&s)
		}
	}
	if err != nil {
		return s, fmt.Errorf("projector: read the state of %s: %w", p.coll.Name(), err)
	}
	return s, nil
}

// applied notes how far the partitions are.
func (p *projection) applied(events []*sluice.Event, errs []error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, e := range events {
		if errs[i] == nil {
			p.reached(e.Partition, position{Seq: int64(e.Seq), ID: e.ID})
		}
	}
}

// save writes the positions that are new.
func (p *projection) save(ctx context.Context) error {
	p.mu.Lock()
	positions := p.positions
	p.positions = map[int]position{}
	p.mu.Unlock()
	if len(positions) == 0 {
		return nil
	}
	models := make([]mongo.WriteModel, 0, len(positions))
	for partition, at := range positions {
		field := "positions." + strconv.Itoa(partition)
		lower := bson.A{bson.D{{Key: field, Value: nil}}, bson.D{{Key: field + ".seq", Value: bson.D{{Key: "$lt", Value: at.Seq}}}}}
		models = append(models, mongo.NewUpdateOneModel().
			SetFilter(append(p.byID(), bson.E{Key: "$or", Value: lower})).
			SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: at}}}}))
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := p.states.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	if err != nil { // they are saved later
		p.mu.Lock()
		defer p.mu.Unlock()
		for partition, at := range positions {
			p.reached(partition, at)
		}
	}
	return err
}

// reached notes how far a partition is; mu is held.
func (p *projection) reached(partition int, at position) {
	if at.Seq > p.positions[partition].Seq {
		p.positions[partition] = at
	}
}

// otherHistory says why the collection is not of the topic's history; "": it may well be.
func (p *projection) otherHistory(ctx context.Context, s state, info admin.GroupInfo) (why string) {
	heads := map[string]uint64{}
	for _, part := range info.Partitions {
		heads[strconv.Itoa(part.Partition)] = part.Head
	}
	lookups := 0
	for partition, at := range s.Positions { // in another order each time
		head, there := heads[partition]
		if !there || int64(head) < at.Seq {
			return fmt.Sprintf("partition %s ends with seq %d, and seq %d was projected", partition, head, at.Seq)
		}
		if lookups++; lookups > maxLookups {
			continue
		}
		life, err := p.client.HTTP().EventLife(ctx, p.cfg.Topic, at.ID)
		if err != nil || life.Stored == nil {
			continue // retention has removed it, or the sidecar is away
		}
		if strconv.Itoa(life.Stored.Partition) != partition || int64(life.Stored.Seq) < at.Seq {
			return fmt.Sprintf("event %s is at seq %d of partition %d, and was projected at seq %d of partition %s",
				at.ID, life.Stored.Seq, life.Stored.Partition, at.Seq, partition)
		}
	}
	return ""
}

// rebuild is one that is under way, or asked for.
type rebuild struct {
	Number int64     `bson:"number"`
	Why    string    `bson:"why"`
	Since  time.Time `bson:"since"`
	Owner  string    `bson:"owner"` // the process that does it; "": none yet
	Beat   int64     `bson:"beat"`  // rises while the owner is alive
	// Swapping: nothing is written any more into the collection that was built, which is being
	// renamed, or has been.
	Swapping bool `bson:"swapping"`
}

// Rebuild makes the processes that run the projection into a collection build it from scratch,
// beside the present one. It returns once the request is stored; Observer.Rebuild reports the
// progress. It does nothing while a rebuild is under way.
func Rebuild(ctx context.Context, coll *mongo.Collection, why string) error {
	all := states(coll)
	id := bson.D{{Key: "_id", Value: coll.Name()}}
	var s state
	if err := all.FindOne(ctx, id).Decode(&s); err != nil {
		return fmt.Errorf("projector: read the state of %s: %w", coll.Name(), err)
	}
	if s.Rebuild != nil {
		return nil
	}
	return begin(ctx, all, id, s, why)
}

// begin notes a rebuild, unless another one was begun since the state was read.
func begin(ctx context.Context, all *mongo.Collection, id bson.D, s state, why string) error {
	next := s.Rebuilds + 1
	filter := append(id, bson.E{Key: "rebuild", Value: nil})
	if s.Rebuilds == 0 {
		filter = append(filter, bson.E{Key: "rebuilds", Value: nil})
	} else {
		filter = append(filter, bson.E{Key: "rebuilds", Value: s.Rebuilds})
	}
	_, err := all.UpdateOne(ctx, filter, bson.D{{Key: "$set", Value: bson.D{
		{Key: "rebuilds", Value: next},
		{Key: "rebuild", Value: rebuild{Number: next, Why: why, Since: time.Now()}},
	}}})
	if err != nil {
		return fmt.Errorf("projector: begin to rebuild: %w", err)
	}
	return nil
}

// change changes the rebuild while it is as it was read; done is false where it is not.
func (p *projection) change(ctx context.Context, r *rebuild, update bson.D) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	filter := append(p.byID(), bson.E{Key: "rebuild.number", Value: r.Number}, bson.E{Key: "rebuild.owner", Value: r.Owner},
		bson.E{Key: "rebuild.beat", Value: r.Beat})
	result, err := p.states.UpdateOne(ctx, filter, update)
	return err == nil && result.MatchedCount > 0, err
}

// newOwner is a name for one process.
func newOwner() string { return strconv.FormatUint(rand.Uint64(), 36) }
