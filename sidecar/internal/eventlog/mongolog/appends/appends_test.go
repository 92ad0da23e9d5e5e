package appends

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

func TestJudge(t *testing.T) {
	write := func(index, code int, raw bson.D) error {
		b, _ := bson.Marshal(raw)
		e := mongo.WriteError{Index: index, Code: code, Message: "E11000 … index: topic_partition_seq", Raw: b}
		return mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: e}}}
	}
	named := func(keys ...string) bson.D {
		var pattern bson.D
		for _, k := range keys {
			pattern = append(pattern, bson.E{Key: k, Value: 1})
		}
		return bson.D{{Key: "keyPattern", Value: pattern}}
	}
	lost := write(3, core.CodeDuplicateKey, nil).(mongo.BulkWriteException)
	lost.WriteConcernError = &mongo.WriteConcernError{Code: 64}
	cases := []struct {
		name   string
		err    error
		stored int
		want   failure
	}{
		{"a duplicate id", write(3, core.CodeDuplicateKey, named("_id")), 3, failure{duplicate: true}},
		{"a duplicate seq", write(3, core.CodeDuplicateKey, named("topic", "partition", "seq")), 3, failure{duplicate: true, seqTaken: true}},
		{"a duplicate that no majority knows of", lost, 0, failure{}},
		{"a bad document", write(3, 2, nil), 3, failure{refused: true}},
		{"interrupted in the middle", write(3, 11600, nil), 0, failure{}},
		{"one of the documents is bad", mongo.CommandError{Code: 2}, 0, failure{refused: true, whole: true}},
		{"not the primary", mongo.CommandError{Code: 10107}, 0, failure{}},
		{"the network", errors.New("connection reset"), 0, failure{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			stored, got := judge(c.err)
			if got.err == nil {
				t.Error("the error is lost")
			}
			got.err = nil
			if stored != c.stored || got != c.want {
				t.Errorf("judge = %d, %+v; want %d, %+v", stored, got, c.stored, c.want)
			}
		})
	}
}

func TestWriteConcernOf(t *testing.T) {
	for _, c := range []struct {
		name string
		w    any
	}{
		{"majority", "majority"}, {"", "majority"}, {"w:0", "majority"}, {"w:1", 1}, {"w:3", 3},
	} {
		if got := writeConcernOf(c.name); got.W != c.w {
			t.Errorf("%q: w %v; want %v", c.name, got.W, c.w)
		}
	}
}
