package admin_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// canned answers as a sidecar would at http://127.0.0.1:7070 and 8083.
func canned() *httptest.Server {
	const one = `{"id":"order-1","ts":1723140000000,"topic":"orders","partition":0,"seq":1,"payload":{"order":1}}`
	const two = `{"id":"order-2","ts":1723140000001,"topic":"orders","partition":0,"seq":2,"payload":{"order":2}}`
	answers := map[string]string{
		"/v1/topics/orders/groups/billing/pull": `{"events":[{"event":` + one + `,"ctx":{"attempt":1,"ack_deadline_ms":30000,"lease":"l1"}},` +
			`{"event":` + two + `,"ctx":{"attempt":2,"ack_deadline_ms":30000,"lease":"l2"}}]}`,
		"/v1/topics/orders/groups/billing/ack": `{"results":[{"ok":true},{"code":"stale_lease","error":"it was delivered again"}]}`,
		"/v1/topics/orders/events/order-1": `{"event":` + one + `,"accepted_at":"2024-08-08T18:00:00.000Z",` +
			`"stored":{"store_id":"s","node_id":"n","partition":0,"seq":1},` +
			`"groups":[{"group":"billing","state":"in_flight","attempts":1,"owner":"n","cursor":1},` +
			`{"group":"mail","state":"settled","attempts":0,"owner":"n","cursor":3}]}`,
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/topics/orders/stream":
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "id: order-1\ndata: "+one+"\n\nid: order-2\ndata: "+two+"\n\n")
		case r.URL.Path == "/export" && r.URL.Query().Get("scope") == "fleet":
			w.Header().Set("Trailer", "Sluice-Missing")
			io.WriteString(w, one+"\n"+two+"\n")
			w.Header().Set("Sluice-Missing", "node-3")
		default:
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, answers[r.URL.Path])
		}
	}))
}

func ExampleHTTP_Pull() {
	ctx := context.Background()
	sidecar := canned()
	defer sidecar.Close()

	h := &admin.HTTP{AppURL: sidecar.URL}
	deliveries, err := h.Pull(ctx, admin.PullQuery{Topic: "orders", Group: "billing", Max: 10, Wait: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	var leases []string
	for _, d := range deliveries {
		fmt.Println(d.Event.ID, "attempt", d.Attempt)
		leases = append(leases, d.Lease)
	}
	refused, err := h.Ack(ctx, "orders", "billing", leases...)
	if err != nil {
		log.Fatal(err) // none of them is acked, as far as is known
	}
	for i, why := range refused {
		if why != nil {
			fmt.Println(deliveries[i].Event.ID, "is not acked:", why)
		}
	}
	// Output:
	// order-1 attempt 1
	// order-2 attempt 2
	// order-2 is not acked: stale_lease: it was delivered again
}

func ExampleHTTP_Stream() {
	sidecar := canned()
	defer sidecar.Close()

	h := &admin.HTTP{AppURL: sidecar.URL}
	for event, err := range h.Stream(context.Background(), admin.StreamQuery{Topic: "orders", From: wire.FromEarliest}) {
		if err != nil {
			break // a stream has no proper end: connect again behind the last event
		}
		fmt.Println(event.ID)
	}
	// Output:
	// order-1
	// order-2
}

// The history of all sidecars, from any of them; here without what cannot be asked, which is named.
func ExampleHTTP_Export_fleet() {
	sidecar := canned()
	defer sidecar.Close()

	h := &admin.HTTP{ReplayURL: sidecar.URL}
	query := admin.ExportQuery{
		Topic: "orders", Scope: "fleet", Partial: true,
		Missing: func(names []string) { fmt.Println("missing:", strings.Join(names, ", ")) },
	}
	for event, err := range h.Export(context.Background(), query) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.ID)
	}
	// Output:
	// order-1
	// order-2
	// missing: node-3
}

func ExampleHTTP_EventLife() {
	sidecar := canned()
	defer sidecar.Close()

	h := &admin.HTTP{AppURL: sidecar.URL}
	life, err := h.EventLife(context.Background(), "orders", "order-1")
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range life.Groups {
		fmt.Println(g.Group, g.State)
	}
	// Output:
	// billing in_flight
	// mail settled
}
