package epochs

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
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
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
func (es *Epochs) eachRedrives(
	ctx context.Context, op string, rs []eventlog.Redrive, do func(ctx context.Context, ids []string) error,
) error {
	ids := make([]string, len(rs))
	for i := range rs {
		ids[i] = redriveID(&rs[i])
	}
	for some := range slices.Chunk(ids, core.MaxStatements) {
		if err := es.store.WithinSession(ctx, op, func(ctx context.Context) error { return do(ctx, some) }); err != nil {
			return err
		}
	}
	return nil
}

// AddRedrives implements eventlog.Redrives.
func (es *Epochs) AddRedrives(ctx context.Context, _ string, rs []eventlog.Redrive) error {
	return es.eachRedrives(ctx, "add redrives", rs, func(ctx context.Context, ids []string) error {
		docs := make([]bson.D, len(ids)) // the id has all the data
		for i, id := range ids {
			docs[i] = core.ByID(id)
		}
		_, err := es.store.InsertNew(ctx, core.Redrives, docs)
		return err
	})
}

// EndRedrives implements eventlog.Redrives.
func (es *Epochs) EndRedrives(ctx context.Context, _ string, rs []eventlog.Redrive) error {
	return es.eachRedrives(ctx, "end redrives", rs, func(ctx context.Context, ids []string) error {
		return es.store.Persist(ctx, func() error {
			_, err := es.store.Majority(core.Redrives).DeleteMany(ctx, bson.D{core.IDAmong(ids)})
			return err
		})
	})
}

// ListRedrives implements eventlog.Redrives.
func (es *Epochs) ListRedrives(ctx context.Context, topic, group string, partition, limit int) (rs []eventlog.Redrive, err error) {
	filter := core.IDsUnder(redrivePrefix(topic, group, partition))
	var docs []core.IDDoc
	err = es.store.WithinSession(ctx, "list redrives", func(ctx context.Context) (err error) {
		docs, err = core.FindAll[core.IDDoc](ctx, es.store, core.Redrives, filter,
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
func (es *Epochs) HasRedrives(ctx context.Context, _ string, rs []eventlog.Redrive) ([]bool, error) {
	found := map[string]bool{}
	err := es.eachRedrives(ctx, "look up redrives", rs, func(ctx context.Context, ids []string) error {
		docs, err := core.FindAll[core.IDDoc](ctx, es.store, core.Redrives, bson.D{core.IDAmong(ids)}, options.Find())
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
