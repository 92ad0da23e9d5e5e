package outbox

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func TestCreateIndexes(t *testing.T) {
	a := newApp(t)
	var lines bytes.Buffer
	d := &Drainer{cfg: Config{Logger: slog.New(slog.NewTextHandler(&lines, nil))}, outbox: a.coll}
	ctx := context.Background()
	mine := mongo.IndexModel{Keys: bson.D{{Key: fieldStatus, Value: 1}, {Key: fieldLeaseUntil, Value: 1}}}
	if _, err := a.coll.Indexes().CreateOne(ctx, mine); err != nil {
		t.Fatal(err)
	}
	a.insert(keyed("a", "t", "", 1), keyed("b", "t", "", 2))
	count := func() int {
		t.Helper()
		there, err := d.indexes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(there) - 1 // without that of _id
	}
	for _, c := range []struct {
		most            int64
		indexes, warned int
	}{{1, 1, 1}, {2, 2, 0}, {0, 2, 0}} {
		lines.Reset()
		if err := d.createIndexes(ctx, c.most); err != nil {
			t.Fatal(err)
		}
		if got, warned := count(), strings.Count(lines.String(), "has no index"); got != c.indexes || warned != c.warned {
			t.Errorf("at most %d documents: %d indexes, want %d; %s", c.most, got, c.indexes, &lines)
		}
	}
}
