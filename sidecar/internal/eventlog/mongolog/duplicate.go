package mongolog

import (
	"bytes"
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// resolve finds out what the event at the front of todo ran into when it tried
// a seq: its id is there already, or the seq is taken.
func (a *appending) resolve(ctx context.Context, ofSeq bool, tried uint64) error {
	if !ofSeq {
		settled, err := a.settle(ctx, a.todo[:min(a.lookup, len(a.todo))])
		if err != nil || settled {
			return err
		}
	}
	h, err := a.log.lookAtHead(ctx, a.concern, a.topic, a.p)
	if err != nil {
		return err
	}
	if h.seq < tried {
		return errBehind
	}
	return nil
}

// settle looks up the ids of events, gives those that are found their outcome,
// and reports whether there were any. Where one is, more may follow: somebody
// repeats what was there, so each time twice as many are looked up.
func (a *appending) settle(ctx context.Context, events []int) (bool, error) {
	found, err := a.find(ctx, events)
	if err != nil || len(found) == 0 {
		return false, err
	}
	if err := a.confirm(ctx); err != nil {
		return false, err
	}
	for _, at := range events {
		raw, ok := found[document.ID(a.topic.Name, a.batch[at].ID)]
		if !ok {
			continue
		}
		s, err := document.Decode(raw)
		if err != nil {
			a.out[at].Err = err
			continue
		}
		if s.Record.Partition == a.p {
			a.partition.head.raise(s.Record.Seq)
		}
		if s.Writer == a.writer && !a.answered(s.Record.Seq) {
			if err := a.recognize(ctx, at, s.Record.Seq); err != nil {
				return false, err
			}
			continue
		}
		a.out[at] = a.repeated(at, s)
	}
	a.drop()
	a.wait = backoff{}
	a.lookup = min(2*a.lookup, maxLookup)
	return true, nil
}

// answered reports whether another event of this call was stored at the seq.
func (a *appending) answered(seq uint64) bool {
	for i := range a.out {
		if o := &a.out[i]; o.Seq == seq && !o.Duplicate && o.Partition == a.p {
			return true
		}
	}
	return false
}

// recognize accepts an earlier try of this call, whose answer was lost.
func (a *appending) recognize(ctx context.Context, at int, seq uint64) error {
	stands, err := a.stands(ctx, head{seq: seq - 1, since: a.oldest.since, generation: a.oldest.generation})
	if err != nil {
		return err
	}
	if !stands {
		return a.undo(ctx, []int{at}, seq)
	}
	a.accept(at, seq)
	return nil
}

// repeated is the outcome of an event whose id is stored.
func (a *appending) repeated(at int, s document.Stored) eventlog.Outcome {
	r := a.batch[at]
	_, own, _ := a.docs[at].raw.Lookup(document.FieldHash).BinaryOK()
	same := bytes.Equal(own, s.Hash)
	if s.Hash == nil && !s.Gone { // somebody took it away by hand
		same = wire.SameContent(&r.Event, &s.Record.Event)
	}
	if !same {
		return eventlog.Outcome{Err: &eventlog.ConflictError{ID: r.ID, Seq: s.Record.Seq}}
	}
	return eventlog.Outcome{Partition: s.Record.Partition, Seq: s.Record.Seq, TS: s.Record.TS, Duplicate: true}
}

// find returns the documents of those events whose ids are stored, by _id.
func (a *appending) find(ctx context.Context, events []int) (map[string]bson.Raw, error) {
	ids := make([]string, len(events))
	for i, at := range events {
		ids[i] = document.ID(a.topic.Name, a.batch[at].ID)
	}
	found := map[string]bson.Raw{}
	if len(ids) > 1 && !a.log.engine().scans {
		cursor, err := a.concern.events.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
		if err != nil {
			return nil, err
		}
		var docs []bson.Raw
		if err := cursor.All(ctx, &docs); err != nil {
			return nil, err
		}
		for _, raw := range docs {
			id, _ := raw.Lookup("_id").StringValueOK()
			found[id] = raw
		}
		return found, nil
	}
	for _, id := range ids {
		raw, err := a.concern.events.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Raw()
		switch {
		case err == nil:
			found[id] = raw
		case !errors.Is(err, mongo.ErrNoDocuments):
			return nil, err
		}
	}
	return found, nil
}
