package bubbletest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
)

// Reads name a document that was broken by hand by its _id, and end before it. Once it is deleted
// by hand, too, readers go on behind it, whether or not they had passed it before.
func TestDocumentThatCannotBeReadIsDeletedByHand(t *testing.T) {
	for _, passed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			set := mongomodel.New(mongomodel.Options{Polling: true})
			t.Cleanup(set.Close)
			l := open(t, set, mongolog.Options{})
			withTopic(t, l)
			stored(t, l, eventlogtest.Events("e", 3), 1, 2, 3)
			if passed {
				wantNext(t, l, 1, 1, 2, 3)
				time.Sleep(time.Minute) // the watermark is stored
			}
			id := bson.D{{Key: "_id", Value: "t/e-001"}}
			withEvents(t, set, func(c *mongo.Collection) error {
				res, err := c.UpdateOne(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "ts", Value: "noon"}}}})
				if err == nil && res.MatchedCount != 1 {
					t.Errorf("no document %v", id)
				}
				return err
			})
			if _, err := l.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 10}); err == nil || !strings.Contains(err.Error(), "t/e-001") {
				t.Errorf("Read: %v; want an error that names the document", err)
			}
			withEvents(t, set, func(c *mongo.Collection) error {
				_, err := c.DeleteOne(t.Context(), id)
				return err
			})
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
				recs, err := l.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 10})
				if err == nil && len(recs) == 2 && recs[1].Seq == 3 {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d events, %v", len(recs), err)
				}
			}
		})
	}
}
