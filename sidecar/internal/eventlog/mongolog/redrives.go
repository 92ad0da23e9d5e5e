package mongolog

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// redrivePrefix begins the ids of a group's redrives. If the partition is 0 or more, it begins only
// that partition's ids. Ids sort by partition, seq and letter.
func redrivePrefix(topic, group string, partition int) string {
	prefix := topic + "/" + url.PathEscape(group) + "/"
	if partition >= 0 {
		prefix += fmt.Sprintf("%04d/", partition)
	}
	return prefix
}

func redriveID(r *eventlog.Redrive) string {
	return redrivePrefix(r.Topic, r.Group, r.Partition) + fmt.Sprintf("%020d/", r.Seq) + r.Letter
}

// eachRedrives calls do with the ids of redrives, a bounded number at a time.
func (l *Log) eachRedrives(ctx context.Context, op string, rs []eventlog.Redrive, do func(ctx context.Context, ids []string) error) error {
	ids := make([]string, len(rs))
	for i := range rs {
		ids[i] = redriveID(&rs[i])
	}
	for some := range slices.Chunk(ids, maxMarkIDs) {
		if err := l.withinSession(ctx, op, func(ctx context.Context) error { return do(ctx, some) }); err != nil {
			return err
		}
	}
	return nil
}

// AddRedrives implements eventlog.Redrives.
func (l *Log) AddRedrives(ctx context.Context, _ string, rs []eventlog.Redrive) error {
	return l.eachRedrives(ctx, "add redrives", rs, func(ctx context.Context, ids []string) error {
		docs := make([]bson.D, len(ids)) // the id has all the data
		for i, id := range ids {
			docs[i] = byID(id)
		}
		return l.insertNew(ctx, redriveName, docs)
	})
}

// EndRedrives implements eventlog.Redrives.
func (l *Log) EndRedrives(ctx context.Context, _ string, rs []eventlog.Redrive) error {
	return l.eachRedrives(ctx, "end redrives", rs, func(ctx context.Context, ids []string) error {
		return l.persist(ctx, func() error {
			_, err := l.majority(redriveName).DeleteMany(ctx, bson.D{idAmong(ids)})
			return err
		})
	})
}

// ListRedrives implements eventlog.Redrives.
func (l *Log) ListRedrives(ctx context.Context, topic, group string, partition, limit int) (rs []eventlog.Redrive, err error) {
	filter := idsUnder(redrivePrefix(topic, group, partition))
	var docs []idDoc
	err = l.withinSession(ctx, "list redrives", func(ctx context.Context) (err error) {
		docs, err = findAll[idDoc](ctx, l, l.majority(redriveName), filter,
			options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(limit)))
		return err
	})
	if err != nil {
		return nil, err
	}
	of := redrivePrefix(topic, group, -1)
	for _, d := range docs {
		r := eventlog.Redrive{GroupPartition: eventlog.GroupPartition{Topic: topic, Group: group}}
		parts := strings.SplitN(strings.TrimPrefix(d.ID, of), "/", 3)
		if len(parts) != 3 {
			continue
		}
		p, err1 := strconv.Atoi(parts[0])
		seq, err2 := strconv.ParseUint(parts[1], 10, 64)
		if err1 == nil && err2 == nil {
			r.Partition, r.Seq, r.Letter = p, seq, parts[2]
			rs = append(rs, r)
		}
	}
	return rs, nil
}

// HasRedrives implements eventlog.Redrives.
func (l *Log) HasRedrives(ctx context.Context, _ string, rs []eventlog.Redrive) ([]bool, error) {
	found := map[string]bool{}
	err := l.eachRedrives(ctx, "look up redrives", rs, func(ctx context.Context, ids []string) error {
		docs, err := findAll[idDoc](ctx, l, l.majority(redriveName), bson.D{idAmong(ids)}, options.Find())
		for _, d := range docs {
			found[d.ID] = true
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	has := make([]bool, len(rs))
	for i := range rs {
		has[i] = found[redriveID(&rs[i])]
	}
	return has, nil
}

// LookupEach implements eventlog.Redrives.
func (l *Log) LookupEach(ctx context.Context, topic string, ids []string) ([]*eventlog.Record, error) {
	found := map[string]*eventlog.Record{}
	for some := range slices.Chunk(ids, maxMarkIDs) {
		err := l.lookupAll(ctx, topic, some, nil, func(raw bson.Raw) error {
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

// lookupAll reads the documents of ids.
func (l *Log) lookupAll(ctx context.Context, topic string, ids []string, projection bson.D, each func(bson.Raw) error) error {
	t, err := l.known(ctx, topic)
	if err != nil {
		return err
	}
	generation := t.generation.Load()
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = document.ID(topic, generation, id)
	}
	o := options.Find()
	if projection != nil {
		o.SetProjection(projection)
	}
	found := 0
	err = l.withinSession(ctx, "look up events of topic "+topic, func(ctx context.Context) error {
		raws, err := findAll[bson.Raw](ctx, l, l.majority(eventsName), bson.D{idAmong(keys)}, o)
		found = len(raws)
		for _, raw := range raws {
			if err == nil {
				err = each(raw)
			}
		}
		return err
	})
	if err != nil || found == len(ids) {
		return err
	}
	// A later generation may have the others.
	if err = l.reread(ctx, topic); err != nil || t.generation.Load() == generation {
		return err
	}
	return l.lookupAll(ctx, topic, ids, projection, each)
}

// Remove implements eventlog.Redrives. A removed event becomes a stub, see stubs.go.
func (l *Log) Remove(ctx context.Context, topic string, ids []string, r eventlog.Retention, now int64) (removed int, err error) {
	for some := range slices.Chunk(ids, sweepBatch) {
		victims := map[int][]entry{}
		err := l.lookupAll(ctx, topic, some, entryFields, func(raw bson.Raw) error {
			var e entry
			if err := bson.Unmarshal(raw, &e); err != nil {
				return err
			}
			if !e.Gone {
				victims[e.Partition] = append(victims[e.Partition], e)
			}
			return nil
		})
		if err != nil {
			return removed, err
		}
		t, err := l.known(ctx, topic)
		if err != nil {
			return removed, err
		}
		for p, es := range victims {
			slices.SortFunc(es, func(a, b entry) int { return int(a.Seq - b.Seq) })
			err := l.withinSession(ctx, "remove events of topic "+topic, func(ctx context.Context) error {
				t.partitions[p].unswept.Store(0)
				return l.makeStubs(ctx, t, p, es, remembering{windowMS: r.DedupeWindowMS, now: now})
			})
			if err != nil {
				return removed, err
			}
			removed += len(es)
		}
	}
	return removed, nil
}
