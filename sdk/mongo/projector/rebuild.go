package projector

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/mongo/internal/majority"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// A rebuild goes in steps. One process does them, and another one goes on where it was when that
// has died:
//
//  1. A collection COLLECTION.rebuild-N gets the indexes of the one that is there, and a group of
//     its own, GROUP.rebuild-N, reads the topic from its first event into it. Before an event is
//     acked the state is read again: a process that was replaced meanwhile acks nothing, so what is
//     acked was there before the renaming.
//  2. The state says that it is swapping. From here on no process writes into it.
//  3. It is renamed in place of the projection's collection, which is dropped.
//  4. The group goes on into the collection under its own name, until it has passed the events that
//     the topic had after the renaming: the events between may have been written to the dropped
//     collection.
//  5. The state says that the rebuild is over, and the group is deleted.
//
// A process that was killed or stands still is a member of the group until the sidecar misses it,
// and one that goes on late makes the group and the collection again. So each check of each process
// deletes those of rebuilds that are over.
//
// Meanwhile the projection itself goes on, into the collection that has its name.

// Progress is how far a rebuild is.
type Progress struct {
	Number int64  // of the projection's rebuilds, from 1
	Why    string // it was begun
	// Done events were read by this process, Left are to be read.
	Done, Left int64
	// Refused events cannot be projected, and were left out.
	Refused int64
	// Ended: the collection is the new one.
	Ended bool
}

const (
	rebuildLook = 100 * time.Millisecond // how often the group of a rebuild is looked at, at most
	// swapPatience is how many checks a rebuild waits for a moment without lag. Under load there
	// may be none; the rebuild then swaps with less than a batch left.
	swapPatience = 50

	rebuildSuffix         = ".rebuild-" // and the rebuild's number: of its collection and its group
	indexDeleted          = "sluice_deleted"
	codeNamespaceNotFound = 26
)

var errNotOurs = errors.New("another process goes on with the rebuild")

// rebuilding is one process's part of a rebuild.
type rebuilding struct {
	*projection
	shadow  *mongo.Collection
	group   string
	done    atomic.Int64
	refused atomic.Int64
	r       rebuild // for the goroutine that runs it
}

func suffix(number int64) string { return rebuildSuffix + strconv.FormatInt(number, 10) }

// follow goes on with the rebuild that the state says is under way, where it is this process's
// turn.
func (p *projection) follow(ctx context.Context, r *rebuild) {
	seen := [2]any{r.Owner, r.Beat}
	if p.seen != seen {
		p.seen, p.seenAt = seen, time.Now()
	}
	dead := time.Since(p.seenAt) > 3*p.cfg.CheckEvery
	if r.Owner != "" && r.Owner != p.owner && !dead || !p.busy.CompareAndSwap(false, true) {
		return
	}
	x := &rebuilding{projection: p, r: *r}
	x.shadow = majority.Collection(p.coll.Database().Collection(p.coll.Name() + suffix(r.Number)))
	x.group = p.cfg.Group + suffix(r.Number)
	p.work.Go(func() {
		defer p.busy.Store(false)
		if err := x.run(ctx); err != nil && ctx.Err() == nil {
			p.cfg.Logger.Warn("projector: a rebuild was broken off, and goes on later", "collection", p.coll.Name(), "number", r.Number, "error",
				err)
		}
	})
}

func (x *rebuilding) run(ctx context.Context) error {
	if x.r.Owner != x.owner {
		if err := x.set(ctx, bson.E{Key: "rebuild.owner", Value: x.owner}); err != nil {
			return err
		}
		x.r.Owner = x.owner
		x.cfg.Logger.Info("projector: rebuilding", "collection", x.coll.Name(), "number", x.r.Number, "why", x.r.Why)
	}
	err := x.steps(ctx)
	if ctx.Err() != nil { // the next process need not wait
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return x.set(ctx, bson.E{Key: "rebuild.owner", Value: ""})
	}
	return err
}

func (x *rebuilding) steps(ctx context.Context) error {
	if !x.r.Swapping {
		if err := x.prepare(ctx); err != nil {
			return err
		}
		if err := x.read(ctx, x.shadow, x.owned, x.caughtUp()); err != nil {
			return err
		}
		if err := x.set(ctx, bson.E{Key: "rebuild.swapping", Value: true}); err != nil {
			return err
		}
		x.r.Swapping = true
	}
	if err := x.rename(ctx); err != nil {
		return err
	}
	unfenced := func(context.Context) error { return nil }
	if err := x.read(ctx, x.coll, unfenced, x.passed()); err != nil {
		return err
	}
	over, err := x.change(ctx, &x.r, bson.D{
		{Key: "$unset", Value: bson.D{{Key: "rebuild", Value: ""}}},
		{Key: "$set", Value: bson.D{{Key: "positions", Value: bson.D{}}}},
	})
	if err == nil && over {
		x.sweep(ctx, x.r.Number)
		x.tell(0, true)
	}
	return err
}

// sweep deletes the groups and the collections of rebuilds up to the last one that is over. A group
// that has members stays until a later check.
func (p *projection) sweep(ctx context.Context, last int64) {
	if last == 0 {
		return
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	groups, err := p.client.HTTP().Groups(asking, p.cfg.Topic)
	for _, name := range groups {
		if isEarlier(name, p.cfg.Group, last) {
			deleted := p.client.HTTP().DeleteGroup(asking, p.cfg.Topic, name)
			if !errors.Is(deleted, sluice.ErrNotFound) && !errors.Is(deleted, &wire.Error{Code: wire.InUse}) {
				err = errors.Join(err, deleted)
			}
		}
	}
	collections, listed := p.coll.Database().ListCollectionNames(asking, bson.D{})
	err = errors.Join(err, listed)
	for _, name := range collections {
		if isEarlier(name, p.coll.Name(), last) {
			err = errors.Join(err, majority.Collection(p.coll.Database().Collection(name)).Drop(asking))
		}
	}
	if err != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn("projector: collections that earlier rebuilds left cannot be deleted; trying again", "collection", p.coll.Name(),
			"error", err)
	}
}

// isEarlier reports whether a name is that of a rebuild up to the last.
func isEarlier(name, base string, last int64) bool {
	number, _ := strconv.ParseInt(strings.TrimPrefix(name, base+rebuildSuffix), 10, 64)
	return 1 <= number && number <= last && name == base+suffix(number)
}

// set changes the rebuild, and shows that this process is alive.
func (x *rebuilding) set(ctx context.Context, fields ...bson.E) error {
	done, err := x.change(ctx, &x.r, bson.D{{Key: "$set", Value: append(bson.D{{Key: "rebuild.beat", Value: x.r.Beat + 1}}, fields...)}})
	if err == nil && !done {
		err = errNotOurs
	}
	if err == nil {
		x.r.Beat++
	}
	return err
}

// owned returns an error if another process has the rebuild, or if it is swapping or over. If it is
// over, owned drops the collection that this process has written to since.
func (x *rebuilding) owned(ctx context.Context) error {
	s, err := x.load(ctx)
	switch {
	case err != nil:
		return err
	case s.Rebuild == nil || s.Rebuild.Number != x.r.Number:
		return errors.Join(errNotOurs, x.shadow.Drop(ctx))
	case s.Rebuild.Owner != x.owner || s.Rebuild.Swapping:
		return errNotOurs
	}
	return nil
}

// prepare makes the collection with the indexes of the one that is there.
func (x *rebuilding) prepare(ctx context.Context) error {
	specs, err := indexes(ctx, x.coll)
	if err != nil || len(specs) == 0 {
		return err
	}
	return x.shadow.Database().RunCommand(ctx, bson.D{
		{Key: "createIndexes", Value: x.shadow.Name()}, {Key: "indexes", Value: specs},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	}).Err()
}

// indexes are a collection's indexes as they are created, without the one on _id.
func indexes(ctx context.Context, coll *mongo.Collection) (specs []bson.D, err error) {
	cursor, err := coll.Indexes().List(ctx)
	if err != nil {
		return nil, err
	}
	var all []bson.D
	if err := cursor.All(ctx, &all); err != nil {
		return nil, err
	}
	for _, index := range all {
		spec, name := bson.D{}, ""
		for _, e := range index {
			switch e.Key {
			case "v", "ns":
				continue
			case "name":
				name, _ = e.Value.(string)
			}
			spec = append(spec, e)
		}
		if name != "_id_" {
			specs = append(specs, spec)
		}
	}
	return specs, nil
}

// rename puts the collection in place of the one that is there, unless that is done. A collection
// that lacks its index is not the one that was built: a process that had stood still made it by
// writing after the renaming.
func (x *rebuilding) rename(ctx context.Context) error {
	specs, err := indexes(ctx, x.shadow)
	if err != nil {
		return err
	}
	for _, spec := range specs {
		for _, e := range spec {
			if e.Key == "name" && e.Value == indexDeleted {
				db := x.coll.Database()
				err := db.Client().Database("admin").RunCommand(ctx, bson.D{
					{Key: "renameCollection", Value: db.Name() + "." + x.shadow.Name()}, {Key: "to", Value: db.Name() + "." + x.coll.Name()},
					{Key: "dropTarget", Value: true}, {Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
				}).Err()
				var refused mongo.ServerError
				if errors.As(err, &refused) && refused.HasErrorCode(codeNamespaceNotFound) {
					return nil
				}
				return err
			}
		}
	}
	return x.shadow.Drop(ctx)
}

// read reads the rebuild's group into a collection until enough says so. Events are acked once
// check has no error.
func (x *rebuilding) read(ctx context.Context, into *mongo.Collection, check func(context.Context) error,
	enough func(admin.GroupInfo) bool) error {
	sub, err := x.client.SubscribeBatch(ctx, x.cfg.Topic, x.group, func(ctx context.Context, batch []*sluice.Message) error {
		return x.handle(ctx, into, batch, check)
	}, x.subscribe()...)
	if err != nil {
		return err
	}
	err = x.await(ctx, sub, enough)
	drain(sub)
	return err
}

// await looks at the group until enough says so, and shows that this process is alive.
func (x *rebuilding) await(ctx context.Context, sub *sluice.Subscription, enough func(admin.GroupInfo) bool) error {
	ticker := time.NewTicker(min(rebuildLook, x.cfg.CheckEvery))
	defer ticker.Stop()
	shown := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-sub.Closed():
			return errors.Join(errors.New("the subscription has ended"), sub.Err())
		case <-ticker.C:
		}
		info, err := x.groupInfo(ctx, x.group)
		if err != nil {
			return err
		}
		if time.Since(shown) >= x.cfg.CheckEvery/2 {
			shown = time.Now()
			if err := x.set(ctx); err != nil {
				return err
			}
			x.tell(info.Lag, false)
		}
		if enough(info) {
			return nil
		}
	}
}

// caughtUp waits for a moment without lag, or, if there is no such moment, for a lag of less than a
// batch.
func (x *rebuilding) caughtUp() func(admin.GroupInfo) bool {
	rounds := 0
	return func(info admin.GroupInfo) bool {
		if info.Lag < int64(x.cfg.Batch) {
			rounds++
		}
		return info.Lag == 0 || rounds > swapPatience
	}
}

// passed waits until all events are settled that the topic had when it was first asked.
func (x *rebuilding) passed() func(admin.GroupInfo) bool {
	var heads map[int]uint64
	return func(info admin.GroupInfo) bool {
		if heads == nil {
			heads = map[int]uint64{}
			for _, part := range info.Partitions {
				heads[part.Partition] = part.Head
			}
		}
		for _, part := range info.Partitions {
			if part.Lag > 0 && part.Cursor <= heads[part.Partition] {
				return false
			}
		}
		return true
	}
}

// handle is the handler of the rebuild's group. An event that cannot be projected is left out: the
// projection itself has met it, too.
func (x *rebuilding) handle(ctx context.Context, into *mongo.Collection, batch []*sluice.Message, check func(context.Context) error) error {
	errs := x.project(ctx, into, eventsOf(batch))
	if err := check(ctx); err != nil {
		return sluice.Hold(holdFor, fmt.Errorf("a rebuild waits: %w", err))
	}
	for i, m := range batch {
		err := errs[i]
		refused := errors.As(err, new(*refusal)) || err != nil && m.Attempt > 1 && !errors.As(err, new(*unavailable))
		switch {
		case refused:
			x.refused.Add(1)
			x.cfg.Logger.Warn("projector: a rebuild leaves an event out", "collection", x.coll.Name(), "id", m.Event.ID, "key", m.Event.Key, "error",
				err)
			errs[i] = nil
		case errors.As(err, new(*unavailable)):
			errs[i] = sluice.Hold(holdFor, err)
		case err == nil:
			x.done.Add(1)
		}
	}
	return sluice.BatchErrors(errs)
}

func (x *rebuilding) tell(left int64, ended bool) {
	if x.cfg.Observer.Rebuild != nil {
		x.cfg.Observer.Rebuild(Progress{Number: x.r.Number, Why: x.r.Why, Done: x.done.Load(), Left: left, Refused: x.refused.Load(),
			Ended: ended})
	}
}
