package bubbletest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// A list of topics is as many commands for a page of 10 as for one of 100, of 10,000 topics, by a
// sidecar that made none of them. Topics with and without events and groups are among them.
func TestAListOfTopicsIsFewCommands(t *testing.T) {
	const topics, partitions = 10_000, 2
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true})
		t.Cleanup(set.Close)
		l := open(t, set, mongolog.Options{})
		names := make([]string, topics)
		for i := range names {
			names[i] = fmt.Sprintf("t-%05d", i)
			_, err := l.EnsureTopic(t.Context(), names[i], partitions)
			require.NoError(t, err)
		}
		for i, name := range names[:100] {
			if i%5 > 0 {
				for p := range partitions {
					for _, o := range l.Append(t.Context(), name, p, eventlogtest.Events(fmt.Sprint("e", p), 3*i)) {
						require.NoError(t, o.Err)
					}
				}
			}
			for g := range i % 3 {
				at := eventlog.GroupPartition{Topic: name, Group: fmt.Sprint("g", g)}
				require.NoError(t, l.TakeEpochs(t.Context(), []eventlog.Epoch{{GroupPartition: at, Number: 1, Owner: "n"}})[0])
			}
		}
		var commands atomic.Int64
		other := open(t, set, mongolog.Options{Monitor: &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) {
			commands.Add(1)
		}}})
		require.NoError(t, other.Ping(t.Context()))
		for i, page := range []int{100, 10, 100} {
			want := int64(4) // how many topics there are, heads, counting, groups
			if i == 0 {
				want += 3 // it reads the catalog, and how far the events go
			}
			before, work := commands.Load(), set.Work()
			list, err := other.Topics(t.Context())
			require.NoError(t, err)
			holdings, err := other.Holdings(t.Context(), names[:page])
			require.NoError(t, err)
			groups, err := other.GroupsOf(t.Context(), names[:page])
			require.NoError(t, err)
			if len(list) != topics || len(holdings) != page {
				t.Fatalf("%d topics, a page of %d", len(list), len(holdings))
			}
			events := 0
			for i, h := range holdings {
				n := 0
				if i%5 > 0 {
					n = 3 * i * partitions
				}
				if h.Topic != names[i] || h.Events != int64(n) || len(groups[h.Topic]) != i%3 {
					t.Errorf("topic %d: %+v with groups %v; want %d events", i, h, groups[h.Topic], n)
				}
				events += n
			}
			synctest.Wait()
			n, keys := commands.Load()-before, set.Work().Minus(work).Keys
			if n != want || keys > 3*events+10*page+topics {
				t.Errorf("a page of %d: %d commands, which examine %d keys for %d events; want %d commands", page, n, keys, events, want)
			}
		}
	})
}

// The numbers of a topic that is too large to be counted are those of its head: right after publishes,
// retention and deletion, and as if there were no gaps after others.
func TestALargeTopicIsNotCounted(t *testing.T) {
	const events = 30_000
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true})
		t.Cleanup(set.Close)
		l, other := open(t, set, mongolog.Options{LoneAfter: -1}), open(t, set, mongolog.Options{})
		withTopic(t, l)
		size := 0
		for i := range events / 1000 {
			list, seqs := eventlogtest.Events(fmt.Sprintf("e-%03d", i), 1000), make([]uint64, 1000)
			for j, e := range list {
				e.TS, seqs[j] = firstTS+int64(i*1000+j), uint64(i*1000+j)+1
				size = e.Size() + len("t")
			}
			stored(t, l, list, seqs...)
		}
		check := func(when string, want eventlog.Holding) {
			t.Helper()
			synctest.Wait()
			before := set.Work()
			list, err := other.Holdings(t.Context(), []string{"t"})
			if err != nil || len(list) != 1 {
				t.Fatalf("%s: %+v, %v", when, list, err)
			}
			want.Topic, want.Extents, want.Bytes = "t", list[0].Extents, want.Events*int64(size)
			if fmt.Sprint(list[0]) != fmt.Sprint(want) {
				t.Errorf("%s: %+v; want %+v", when, list[0], want)
			}
			if keys := set.Work().Minus(before).Keys; want.Events > 25_600 && keys > 10 {
				t.Errorf("%s: %d keys were examined", when, keys)
			}
		}
		sweep(t, l, eventlog.Retention{}, firstTS, 0) // raises the watermark
		check("after publishes", eventlog.Holding{Events: events, FirstTS: firstTS, LastTS: firstTS + events - 1})
		_, err := l.Erase(t.Context(), "t", 0, []uint64{5, 6}, eventlog.Retention{}, firstTS)
		require.NoError(t, err)
		check("after an erasure", eventlog.Holding{Events: events, FirstTS: firstTS, LastTS: firstTS + events - 1})
		sweep(t, l, eventlog.Retention{UpTo: []uint64{900}}, firstTS, 898)
		check("after retention", eventlog.Holding{Events: events - 900, FirstTS: firstTS + 900, LastTS: firstTS + events - 1})
		for i := range uint64(5) {
			sweep(t, l, eventlog.Retention{UpTo: []uint64{1800 + 900*i}}, firstTS, 900)
		}
		check("once it can be counted", eventlog.Holding{Events: events - 5400, FirstTS: firstTS + 5400, LastTS: firstTS + events - 1})
		require.NoError(t, l.DeleteTopic(t.Context(), "t"))
		withTopic(t, l)
		again := eventlogtest.Events("e-000", 2)
		stored(t, l, again, events+1, events+2)
		check("once it was deleted and made again", eventlog.Holding{Events: 2, FirstTS: again[0].TS, LastTS: again[1].TS})
	})
}
