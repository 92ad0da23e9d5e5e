package sdk_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// An event that is published for later is listed and can be taken back, in each way to publish. A
// publish whose answer was lost is sent again, and schedules nothing twice.
func TestPublishingForLater(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{Fate: once(wire.OpPublish, sluicetest.BrokenAfter)})
	h := client.HTTP()
	at := time.UnixMilli(time.Now().Add(time.Hour).UnixMilli()).Add(time.Microsecond)
	due := at.UnixMilli() + 1 // not before
	wantDue := func(what string, r wire.Receipt, err error) {
		t.Helper()
		if err != nil || r.DeliverAt != due || r.Seq != 0 || r.Duplicate {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	r, err := client.Publish(t.Context(), eventOf("orders", "lost"), option.DeliverAt(at))
	r.Duplicate = false // of its own first try
	wantDue("the client, after a lost answer", r, err)
	results, err := client.PublishBatch(t.Context(), []sluice.Event{*eventOf("orders", "b0"), *eventOf("orders", "b1")}, option.DeliverAt(at))
	for _, r := range results {
		wantDue("a batch", r.Receipt, err)
	}
	r, err = h.Publish(t.Context(), eventOf("orders", "h"), option.DeliverAt(at), option.TTL(time.Minute))
	wantDue("by HTTP", r, err)
	items, err := h.PublishBatch(t.Context(), "orders", []wire.Event{*eventOf("orders", "hb")}, option.DeliverAt(at))
	wantDue("a batch by HTTP", items[0].Receipt, err)
	before := time.Now().Add(time.Hour).UnixMilli()
	r, err = client.Publish(t.Context(), eventOf("orders", "z"), option.Delay(2*time.Hour))
	if err != nil || r.DeliverAt < before+time.Hour.Milliseconds() || r.DeliverAt > time.Now().Add(2*time.Hour).UnixMilli() {
		t.Errorf("with a delay: %+v, %v", r, err)
	}
	listed := func() (ids []string) {
		for e, err := range h.AllScheduled(t.Context(), "orders") {
			require.NoError(t, err)
			ids = append(ids, e.ID)
		}
		slices.Sort(ids)
		return ids
	}
	if ids := listed(); !slices.Equal(ids, []string{"b0", "b1", "h", "hb", "lost", "z"}) {
		t.Errorf("scheduled %q", ids)
	}
	if page, err := h.Scheduled(t.Context(), "orders", 4, ""); err != nil || page.Total != 6 || len(page.Scheduled) != 4 || page.Next == "" {
		t.Errorf("a page: %+v, %v", page, err)
	}
	for _, id := range listed() {
		if err := h.CancelScheduled(t.Context(), "orders", id); err != nil {
			t.Error(err)
		}
	}
	if err := h.CancelScheduled(t.Context(), "orders", "z"); !errors.Is(err, &wire.Error{Code: wire.NotFound}) {
		t.Errorf("again: %v", err)
	}
	if ids, events := listed(), sidecar.Events("orders"); len(ids)+len(events) > 0 {
		t.Errorf("left are %q and %v", ids, events)
	}
	if _, err := client.Publish(t.Context(), eventOf("orders", "x"), option.Delay(time.Second), option.DeliverAt(at)); !errors.Is(err,
		sluice.ErrBadRequest) {
		t.Errorf("both: %v", err)
	}
	if _, err := client.Publish(t.Context(), eventOf("orders", "x"), option.TTL(time.Millisecond), nil); err != nil ||
		sidecar.Events("orders")[0].TTLMS != 1 {
		t.Errorf("with a ttl: %v, %+v", err, sidecar.Events("orders"))
	}
}

// Latest returns a complete result, or an error.
func TestLatest(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	h := httpClient(t, sidecar)
	none := func(wire.Event) error { return errors.New("no event is expected") }
	if _, err := h.Latest(t.Context(), admin.LatestQuery{Topic: "table"}, none); !errors.Is(err, &wire.Error{Code: wire.NotFound}) {
		t.Errorf("of no topic: %v", err)
	}
	for i, key := range []string{"a", "b", "c", "a", "b"} {
		e := &wire.Event{Topic: "table", Key: key, Payload: []byte{byte('0' + i)}}
		if i == 4 {
			e.Payload = []byte("null")
		}
		if _, err := h.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	latest := func(q admin.LatestQuery) map[string]string {
		got := map[string]string{}
		q.Topic = "table"
		positions, err := h.Latest(t.Context(), q, func(e wire.Event) error { got[e.Key] = string(e.Payload); return nil })
		if err != nil || !maps.Equal(positions, map[int]uint64{0: 5}) {
			t.Errorf("%v, %v", positions, err)
		}
		return got
	}
	if got := latest(admin.LatestQuery{}); !maps.Equal(got, map[string]string{"a": "3", "c": "2"}) {
		t.Errorf("latest are %v", got)
	}
	if got := latest(admin.LatestQuery{Keys: []string{"a", "b"}}); !maps.Equal(got, map[string]string{"a": "3"}) {
		t.Errorf("latest are %v", got)
	}
	if got := latest(admin.LatestQuery{Prefix: "c"}); !maps.Equal(got, map[string]string{"c": "2"}) {
		t.Errorf("latest are %v", got)
	}
	enough := errors.New("enough")
	if p, err := h.Latest(t.Context(), admin.LatestQuery{Topic: "table"}, func(wire.Event) error { return enough }); !errors.Is(err,
		enough) || p != nil {
		t.Errorf("%v, %v", p, err)
	}
}
