package mongolog

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// index is one index of one collection.
type index struct {
	collection string
	name       string
	model      mongo.IndexModel
}

// indexes are all that the log wants to have, but for those on _id.
func (l *Log) indexes(e engine) []index {
	ix := []index{
		// The compare-and-set of appends, and the order of reads.
		newIndex(eventsName, "topic_partition_seq", true, "topic", "partition", "seq"),
		// Replay and export.
		newIndex(eventsName, "topic_ts_id", false, "topic", "ts", "id"),
		// Replay of one key, and compaction.
		newIndex(eventsName, "topic_key_ts_id", false, "topic", "key", "ts", "id"),
		newIndex(headsName, "topic_partition_seq", false, "topic", "partition", "seq"),
		newIndex(epochsName, "topic_group_partition_number", true, "topic", "group", "partition", "number"),
	}
	if e.ttl {
		for _, c := range []string{eventsName, marksName} {
			x := newIndex(c, "expireAt", false, "expireAt")
			x.model.Options.SetExpireAfterSeconds(0).SetSparse(true) // what is kept has no entry
			ix = append(ix, x)
		}
	}
	return ix
}

func newIndex(collection, name string, unique bool, fields ...string) index {
	var keys bson.D
	for _, f := range fields {
		keys = append(keys, bson.E{Key: f, Value: 1})
	}
	o := options.Index().SetName(name)
	if unique {
		o.SetUnique(true)
	}
	return index{collection, name, mongo.IndexModel{Keys: keys, Options: o}}
}
