package bubbletest

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

const (
	liveEvents = 1000
	goneEvents = 20_000
)

// Removed events cost readers nothing. With twenty stubs for each event, before all of them or in
// between, every read examines the documents that it returns alone, and sends no more commands than
// in a topic without stubs. On a real server the hints select these plans.
func TestWhatIsGoneCostsReadersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true})
		t.Cleanup(set.Close)
		withPlain(t, set)
		insertSparse(t, set, "before", func(i int) int64 { return goneEvents + int64(i) + 1 })
		insertSparse(t, set, "between", func(i int) int64 { return int64(i+1) * goneEvents / liveEvents })
		for _, c := range readers {
			want := cost{}
			for _, topic := range []string{"t", "before", "between"} {
				l, commands := counted(t, set)
				before := set.Work()
				n, err := c.read(t.Context(), l, topic)
				if err != nil {
					t.Fatalf("%s of %s: %v", c.name, topic, err)
				}
				synctest.Wait()
				work := set.Work().Minus(before)
				got := cost{n, work.Documents, int(commands.Load())}
				if work.Sorted > 0 {
					t.Errorf("%s of %s sorts %d documents", c.name, topic, work.Sorted)
				}
				if topic == "t" {
					want = got
				}
				if got.events != c.events || got.documents > want.documents+1 || got.commands > want.commands || got.documents > got.events+c.besides {
					t.Errorf("%s of %s costs %+v; want %d events, as in a topic where nothing is gone: %+v", c.name, topic, got, c.events, want)
				}
			}
		}
	})
}

// cost is how many events a read returns, how many documents it looks at, and how many commands it
// sends.
type cost struct{ events, documents, commands int }

// readers are all ways to read events. besides counts the documents that a read looks at and does
// not return: the topic's, its head, the first and the last event, the nodes of times. Where pages follow each other,
// the model also begins with the last event of the page before.
var readers = []struct {
	name            string
	events, besides int
	read            func(ctx context.Context, l *mongolog.Log, topic string) (int, error)
}{
	{"a cold start", liveEvents, 13, func(ctx context.Context, l *mongolog.Log, topic string) (n int, _ error) {
		for next := uint64(1); ; {
			page, err := l.Read(ctx, topic, 0, next, eventlog.Bounds{Events: 100})
			if err != nil || len(page) == 0 {
				return n, err
			}
			n, next = n+len(page), page[len(page)-1].Seq+1
		}
	}},
	{"a replay", liveEvents, 11, func(ctx context.Context, l *mongolog.Log, topic string) (n int, _ error) {
		return scan(ctx, l, topic, eventlog.ScanQuery{})
	}},
	{"a replay backwards", liveEvents, 11, func(ctx context.Context, l *mongolog.Log, topic string) (n int, _ error) {
		return scan(ctx, l, topic, eventlog.ScanQuery{Descending: true})
	}},
	{"a replay of one key", 10, 2, func(ctx context.Context, l *mongolog.Log, topic string) (n int, _ error) {
		key := "k-7"
		return scan(ctx, l, topic, eventlog.ScanQuery{Key: &key})
	}},
	{"the latest of a key", 1, 1, func(ctx context.Context, l *mongolog.Log, topic string) (int, error) {
		e, err := eventlogtest.LatestByKey(ctx, l, topic, "k-7")
		if err == nil && e.ID != "e-907" {
			err = fmt.Errorf("event %q", e.ID)
		}
		return 1, err
	}},
	{"the latest of all keys that have ten events each", 100, 903, func(ctx context.Context, l *mongolog.Log, topic string) (n int, _ error) {
		for q := (eventlog.LatestQuery{}); ; {
			page, err := l.Latest(ctx, topic, q, eventlog.Bounds{Events: 200})
			if err != nil || len(page) == 0 {
				return n, err
			}
			n, q.Below = n+len(page), page[len(page)-1].Key
		}
	}},
	{"a seek to the earliest", 1, 3, seek(eventlog.Position{From: wire.FromEarliest}, 0)},
	{"a seek to the latest", 1, 3, seek(eventlog.Position{From: wire.FromLatest}, liveEvents)},
	{"a seek to a time", 1, 8, seek(eventlog.Position{From: wire.FromTS, TS: firstTS + 500}, 500)},
	{"a seek behind an event", 1, 9, seek(eventlog.Position{From: wire.FromAfterID, After: eventlog.Point{TS: firstTS + 500, ID: "e-500"}},
		501)},
}

// A sidecar died, and voids took its seqs. Who looks for events behind them examines no void.
func TestVoidsCostNothingToLookPast(t *testing.T) {
	withLateStore(t, func(t *testing.T, s *lateStore) {
		withTopic(t, s.Log)
		stored(t, s.Log, eventlogtest.Events("a", 1), 1)
		reserve(t, s, 500)
		wantNext(t, s.Log, 1, 1)
		time.Sleep(2 * patience)
		_, err := s.Read(t.Context(), "t", 0, 2, eventlog.Bounds{Events: 1})
		require.NoError(t, err)
		for documents := range 2 {
			synctest.Wait() // what others have begun ends
			before := s.set.Work()
			ahead, err := s.Ahead(t.Context(), []eventlog.Hint{{Topic: "t", Head: 1}})
			if work := s.set.Work().Minus(before); err != nil || len(ahead) != documents || work.Documents != documents || work.Keys > 1 {
				t.Errorf("Ahead = %v, %v, and examines %+v", ahead, err, work)
			}
			if documents == 0 {
				stored(t, s.Log, eventlogtest.Events("b", 1), 502)
			}
		}
	})
}

// scan goes through a query's events in pages, and counts them.
func scan(ctx context.Context, l *mongolog.Log, topic string, q eventlog.ScanQuery) (n int, _ error) {
	for {
		page, err := l.Scan(ctx, topic, q, eventlog.Bounds{Events: 100})
		if err != nil || len(page) == 0 {
			return n, err
		}
		n += len(page)
		last := page[len(page)-1]
		q.After = &eventlog.Point{TS: last.TS, ID: last.ID}
	}
}

// seek looks for a position, and the event that is there.
func seek(p eventlog.Position, want int) func(ctx context.Context, l *mongolog.Log, topic string) (int, error) {
	return func(ctx context.Context, l *mongolog.Log, topic string) (int, error) {
		seqs, err := l.Seek(ctx, topic, p)
		if err != nil {
			return 0, err
		}
		if got := places[topic](want); int64(seqs[0]) != got && want < liveEvents {
			return 0, fmt.Errorf("seq %d; want %d", seqs[0], got)
		}
		return 1, nil
	}
}

const firstTS = int64(1_700_000_000_000)

// places are where the events of the topics are.
var places = map[string]func(i int) int64{"t": func(i int) int64 { return int64(i) + 1 }}

// withPlain makes the topic t, with events of 100 keys and nothing else, all of them below the
// watermark.
func withPlain(t *testing.T, set *mongomodel.Set) {
	t.Helper()
	l := open(t, set, mongolog.Options{})
	withTopic(t, l)
	list, seqs := eventlogtest.Events("e", liveEvents), make([]uint64, liveEvents)
	for i, e := range list {
		e.TS, e.Key = firstTS+int64(i), fmt.Sprintf("k-%d", i%100)
		seqs[i] = uint64(i) + 1
	}
	stored(t, l, list, seqs...)
	sweep(t, l, eventlog.Retention{}, firstTS, 0)
}

// insertSparse makes a topic with the events of t at other seqs, and stubs at all other seqs below.
func insertSparse(t *testing.T, set *mongomodel.Set, topic string, at func(i int) int64) {
	t.Helper()
	places[topic] = at
	withEvents(t, set, func(c *mongo.Collection) error {
		ctx := t.Context()
		if _, err := c.Database().Collection("topics").InsertOne(ctx, bson.D{{Key: "_id", Value: topic},
			{Key: "partitions", Value: 1}}); err != nil {
			return err
		}
		found, err := c.Find(ctx, bson.D{{Key: "topic", Value: "t"}, {Key: "partition", Value: 0}})
		if err != nil {
			return err
		}
		var copies []bson.D
		if err := found.All(ctx, &copies); err != nil {
			return err
		}
		last := bson.D{{Key: "0", Value: at(len(copies) - 1)}}
		docs := []any{bson.D{
			{Key: "_id", Value: bson.D{{Key: "head", Value: topic}}}, {Key: "topic", Value: topic}, {Key: "partition", Value: -1},
			{Key: "seq", Value: int64(math.MaxInt64)},
			{Key: "head", Value: last}, {Key: "settled", Value: last},
			{Key: "first", Value: bson.D{}}, {Key: "removed", Value: bson.D{}}, {Key: "patience", Value: bson.D{}},
		}}
		taken := map[int64]bool{}
		for i, d := range copies {
			taken[at(i)] = true
			set := map[string]any{"_id": topic + "/" + value(d, "id").(string), "topic": topic, "seq": at(i)}
			for j := range d {
				if v, ok := set[d[j].Key]; ok {
					d[j].Value = v
				}
			}
			docs = append(docs, d)
		}
		for seq := int64(1); seq < at(len(copies)-1); seq++ {
			if taken[seq] {
				continue
			}
			id := fmt.Sprintf("gone-%d", seq)
			docs = append(docs, bson.D{
				{Key: "_id", Value: topic + "/" + id}, {Key: "topic", Value: topic}, {Key: "partition", Value: int32(0)}, {Key: "seq", Value: seq},
				{Key: "ts", Value: firstTS}, {Key: "accepted", Value: firstTS}, {Key: "id", Value: id}, {Key: "gone", Value: true},
				{Key: "gone_at", Value: firstTS},
			})
		}
		for ; len(docs) > 0; docs = docs[min(len(docs), 10_000):] {
			if _, err := c.InsertMany(ctx, docs[:min(len(docs), 10_000)]); err != nil {
				return err
			}
		}
		return nil
	})
}

func value(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}
