package sdk_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
	"github.com/sluice-bus/sluice/test/testkit"
)

func httpClient(t *testing.T, sidecar *sluicetest.Sidecar) *admin.HTTP {
	h := &admin.HTTP{AppURL: sidecar.URL, ReplayURL: sidecar.URL, OpsURL: sidecar.URL}
	t.Cleanup(h.CloseIdle)
	return h
}

func TestReplayPages(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	h := httpClient(t, sidecar)
	for i := range 25 {
		e := eventOf("orders", fmt.Sprint(i))
		e.TS = int64(1000 + i) // a replay is in its order
		if _, err := h.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	query := sluice.ReplayQuery{Topic: "orders", Limit: 10}
	var sizes, ids []string
	for {
		page, err := h.Replay(t.Context(), query)
		require.NoError(t, err)
		sizes = append(sizes, fmt.Sprint(len(page.Events)))
		for _, e := range page.Events {
			ids = append(ids, e.ID)
		}
		if page.Next == "" {
			break
		}
		query.Cursor = page.Next
	}
	if strings.Join(sizes, " ") != "10 10 5" || len(ids) != 25 || ids[24] != "24" {
		t.Fatalf("pages of %v, events %v", sizes, ids)
	}
	_, err := h.Replay(t.Context(), sluice.ReplayQuery{Topic: "orders", From: wire.FromAfterID, AfterID: "none"})
	if !errors.Is(err, &wire.Error{Code: wire.NotFound}) {
		t.Fatalf("an unknown afterId: %v", err)
	}
}

func TestExport(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	h := httpClient(t, sidecar)
	// Longer than the line buffer.
	long := &wire.Event{Topic: "orders", ID: "long", Payload: []byte(`"` + strings.Repeat("x", 200_000) + `"`)}
	for _, e := range []*wire.Event{eventOf("orders", "a"), long, eventOf("orders", "z")} {
		if _, err := h.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	var got []wire.Event
	for e, err := range h.Export(t.Context(), sluice.ExportQuery{Topic: "orders"}) {
		require.NoError(t, err)
		got = append(got, e)
	}
	if len(got) != 3 || got[0].ID != "a" || len(got[1].Payload) != 200_002 || got[2].ID != "z" {
		t.Fatalf("%d events", len(got))
	}
}

func TestBrokenExportIsAnError(t *testing.T) {
	sidecar := start(t, sluicetest.Options{BreakExportAfter: 2})
	publishMany(t, sidecar, "orders", 5)
	var events int
	var last error
	for _, err := range httpClient(t, sidecar).Export(t.Context(), sluice.ExportQuery{Topic: "orders"}) {
		if last = err; err == nil {
			events++
		}
	}
	if events != 2 || !errors.Is(last, sluice.ErrTruncated) {
		t.Fatalf("%d events, then %v", events, last)
	}
}

func TestHTTPBatch(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	results, err := httpClient(t, sidecar).PublishBatch(t.Context(), "orders", []wire.Event{*eventOf("", "1"), *eventOf("", "2"),
		*eventOf("", "1")})
	if err != nil || len(results) != 3 || !results[2].Receipt.Duplicate || results[1].Receipt.Seq != 2 {
		t.Fatalf("%+v, %v", results, err)
	}
}

func TestInfo(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	publishMany(t, sidecar, "orders", 3)
	conn := dialConn(t, sidecar, nil)
	if _, err := conn.Subscribe(t.Context(), "orders", "g", nil, func([]wire.Delivery) {}); err != nil {
		t.Fatal(err)
	}
	h := httpClient(t, sidecar)
	if topics, err := h.Topics(t.Context()); err != nil || len(topics) != 1 || topics[0].Partitions[0].Head != 3 {
		t.Errorf("topics %+v, %v", topics, err)
	}
	if groups, err := h.Groups(t.Context(), "orders"); err != nil || len(groups) != 1 || groups[0] != "g" {
		t.Errorf("groups %v, %v", groups, err)
	}
	testkit.Eventually(t, "the group's member is caught up", func() bool {
		info, err := h.GroupInfo(t.Context(), "orders", "g")
		return err == nil && len(info.Members) == 1 && info.Members[0].BlockedBy != nil && *info.Members[0].BlockedBy == "caught_up"
	})
	if _, err := h.GroupInfo(t.Context(), "orders", "none"); !errors.Is(err, &wire.Error{Code: wire.NotFound}) {
		t.Errorf("an unknown group: %v", err)
	}
	if status, err := h.Status(t.Context()); err != nil || status.NodeID != "sluicetest" || status.Store.State != "ok" {
		t.Errorf("status %+v, %v", status, err)
	}
}
