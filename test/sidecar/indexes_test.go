package sidecar

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// Names in a store. They are documented for people, who look at and create the same things as the
// tests.
const (
	eventsName = "events"
	seqIndex   = "topic_partition_seq"
	timeIndex  = "topic_ts_id"
)

// index is an index of events as the server has it.
func (db database) index(t *testing.T, name string) (keys string, unique bool) {
	t.Helper()
	specs, err := db.Collection(eventsName).Indexes().ListSpecifications(t.Context())
	require.NoError(t, err)
	for _, s := range specs {
		if s.Name == name {
			elements, err := s.KeysDocument.Elements()
			require.NoError(t, err)
			var list []string
			for _, e := range elements {
				list = append(list, e.Key())
			}
			return strings.Join(list, " "), s.Unique != nil && *s.Unique
		}
	}
	return "", false
}

// spoil replaces a unique index of events by one that is not unique.
func (db database) spoil(t *testing.T, name string, keys ...string) {
	t.Helper()
	ix := db.Collection(eventsName).Indexes()
	if present, _ := db.index(t, name); present != "" {
		require.NoError(t, ix.DropOne(t.Context(), name))
	}
	var d bson.D
	for _, k := range keys {
		d = append(d, bson.E{Key: k, Value: 1})
	}
	if _, err := ix.CreateOne(t.Context(), mongo.IndexModel{Keys: d, Options: options.Index().SetName(name)}); err != nil {
		t.Fatal(err)
	}
}

func (db database) checkIndexes(t *testing.T) {
	t.Helper()
	if keys, unique := db.index(t, seqIndex); keys != "topic partition seq" || !unique {
		t.Errorf("index %s is on (%s), unique %v", seqIndex, keys, unique)
	}
	if keys, unique := db.index(t, timeIndex); keys != "topic ts id" || unique {
		t.Errorf("index %s is on (%s), unique %v", timeIndex, keys, unique)
	}
}

// checkReceipts checks that each answered event is where the answer said, and that there are no
// others.
func checkReceipts(t *testing.T, receipts []wire.Receipt, events []wire.Event) {
	t.Helper()
	type place struct {
		partition int
		seq       uint64
	}
	at := map[string]place{}
	taken := map[place]string{}
	for _, e := range events {
		here := place{e.Partition, e.Seq}
		if other, twice := taken[here]; twice {
			t.Errorf("%s and %s are both at %+v", other, e.ID, here)
		}
		taken[here], at[e.ID] = e.ID, here
	}
	if len(events) != len(receipts) || len(at) != len(receipts) {
		t.Errorf("%d events, %d different ones, of %d that were answered", len(events), len(at), len(receipts))
	}
	for _, r := range receipts {
		if r.Duplicate {
			t.Errorf("%s was answered as a duplicate", r.ID)
		}
		if here, ok := at[r.ID]; !ok || !r.Spooled && here != (place{r.Partition, r.Seq}) {
			t.Errorf("%s was answered as %+v and is at %+v (there: %v)", r.ID, r, here, ok)
		}
	}
}

// TestSidecarWaitsForAnIndex starts a sidecar on a store whose index is not unique. The sidecar
// must not append there, and says what to do.
func TestSidecarWaitsForAnIndex(t *testing.T) {
	const topic = "orders"
	db := newDatabase(t)
	db.spoil(t, seqIndex, "topic", "partition", "seq")
	p := startShared(t, t.TempDir(), "a", db, "--store-timeout", "1s")
	h := client(t, p)
	var receipts []wire.Receipt
	publish := func() wire.Receipt {
		r, err := h.Publish(t.Context(), &wire.Event{ID: fmt.Sprintf("e-%d", len(receipts)), Topic: topic, Key: "k", Payload: []byte("1")})
		require.NoError(t, err)
		receipts = append(receipts, r)
		return r
	}
	for range 5 {
		if r := publish(); !r.Spooled {
			t.Errorf("%+v: it was stored without the unique index", r)
		}
	}
	if log := p.Log(); !strings.Contains(log, "dropIndex") || !strings.Contains(log, seqIndex) {
		t.Errorf("the log does not say what to do:\n%s", log)
	}
	require.NoError(t, db.Collection(eventsName).Indexes().DropOne(t.Context(), seqIndex))
	awaitSpoolMoved(t, h)
	db.checkIndexes(t)
	publish()
	checkReceipts(t, receipts, exportTopic(t, h, topic))
}

func awaitSpoolMoved(t *testing.T, h *admin.HTTP) {
	t.Helper()
	await(t, func() string {
		s, err := h.Status(t.Context())
		require.NoError(t, err)
		if s.Spool.Events == 0 && s.Store.State == "ok" {
			return ""
		}
		return fmt.Sprintf("store %+v, spool %+v", s.Store, s.Spool)
	})
}

// closedAddress is an address without a listener.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
