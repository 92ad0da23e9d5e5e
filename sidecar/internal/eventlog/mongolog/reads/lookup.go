package reads

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// Lookup implements eventlog.Reader.
func (r *Reader) Lookup(ctx context.Context, topic, id string) (*eventlog.Record, error) {
	found, err := r.LookupEach(ctx, topic, []string{id})
	if err == nil && found[0] == nil {
		err = eventlog.NotFound("event %q of topic %q", id, topic)
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// Locate implements eventlog.Reader.
func (r *Reader) Locate(ctx context.Context, topic, id string) (at eventlog.Location, err error) {
	found := false
	err = r.EachByID(ctx, topic, []string{id}, nil, func(raw bson.Raw) error {
		s, err := document.Decode(raw)
		if err == nil && s.Record.Partition != document.Unplaced {
			found = true
			at = eventlog.Location{Partition: s.Record.Partition, Seq: s.Record.Seq, TS: s.Record.TS, Gone: s.Gone}
		}
		return err
	})
	if err == nil && !found {
		err = eventlog.NotFound("event %q of topic %q", id, topic)
	}
	return at, err
}

// LookupEach implements eventlog.Redrives.
func (r *Reader) LookupEach(ctx context.Context, topic string, ids []string) ([]*eventlog.Record, error) {
	found := map[string]*eventlog.Record{}
	for some := range slices.Chunk(ids, core.MaxStatements) {
		err := r.EachByID(ctx, topic, some, nil, func(raw bson.Raw) error {
			s, err := document.Decode(raw)
			if err == nil && !s.Gone {
				found[s.Record.ID] = s.Record
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	recs := make([]*eventlog.Record, len(ids))
	for i, id := range ids {
		recs[i] = found[id]
	}
	return recs, nil
}

// EachByID calls each with the documents of ids.
func (r *Reader) EachByID(ctx context.Context, topic string, ids []string, projection bson.D, each func(bson.Raw) error) error {
	t, err := r.catalog.Known(ctx, topic)
	if err != nil {
		return err
	}
	generation := t.Generation()
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = document.ID(topic, generation, id)
	}
	o := options.Find()
	if projection != nil {
		o.SetProjection(projection)
	}
	found := 0
	err = r.store.WithinSession(ctx, "look up events of topic "+topic, func(ctx context.Context) error {
		raws, err := core.FindAll[bson.Raw](ctx, r.store, core.Events, bson.D{core.IDAmong(keys)}, o)
		for _, raw := range raws {
			if gone, _ := raw.Lookup(document.FieldGone).BooleanOK(); !gone {
				found++
			}
			if err == nil {
				err = each(raw)
			}
		}
		return err
	})
	if err != nil || found == len(ids) {
		return err
	}
	// A later generation may have the others, and those that are gone.
	if err = r.catalog.Reread(ctx, topic); err != nil || t.Generation() == generation {
		return err
	}
	return r.EachByID(ctx, topic, ids, projection, each)
}
