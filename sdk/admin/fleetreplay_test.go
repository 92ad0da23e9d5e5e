package admin_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// fleetServer answers as a sidecar whose fleet lacks a part, unless a partial answer will not do.
func fleetServer(t *testing.T, trailers bool) *admin.HTTP {
	t.Helper()
	mux := http.NewServeMux()
	refused := func(w http.ResponseWriter, r *http.Request) bool {
		if r.FormValue("partial") == "ok" {
			return false
		}
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprint(w, `{"error":"node-3 cannot be asked","code":"partial_fleet","missing":["node-3 (x:1)"]}`)
		return true
	}
	mux.HandleFunc("GET /replay", func(w http.ResponseWriter, r *http.Request) {
		if refused(w, r) {
			return
		}
		next := `,"next":"more"`
		if r.FormValue("cursor") != "" {
			next = ""
		}
		fmt.Fprintf(w, `{"topic":"orders","events":[{"id":"a","ts":1,"topic":"orders","payload":1}],"count":1%s,`+
			`"partial":true,"missing":["node-3 (x:1)"]}`, next)
	})
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, r *http.Request) {
		if refused(w, r) {
			return
		}
		if trailers {
			w.Header().Set("Trailer", "Sluice-Missing")
		}
		w.Header().Set("Sluice-Missing", "early%2C bird")
		for _, id := range []string{"a", "b"} {
			fmt.Fprintf(w, `{"id":%q,"ts":1,"topic":"orders","payload":1}`+"\n", id)
			if r.FormValue("progress") == "1" {
				fmt.Fprintf(w, `{"progress":[{"part":"store of %s","events":7}]}`+"\n", id)
			}
		}
		if trailers {
			w.Header().Set("Sluice-Missing", "node-3 (x:1), b%3Dc")
		}
	})
	mux.HandleFunc("GET /peers", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"peers":[{"node_id":"n","address":"x:1","store_id":"s","self":true,"reachable":false,"reason":"gone"}]}`)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	h := &admin.HTTP{ReplayURL: srv.URL}
	t.Cleanup(h.CloseIdle)
	return h
}

func TestPartialReplay(t *testing.T) {
	h := fleetServer(t, true)
	_, err := h.Replay(t.Context(), admin.ReplayQuery{Topic: "orders", Scope: "fleet"})
	if e := new(wire.Error); !errors.As(err, &e) || e.Code != wire.PartialFleet || !slices.Equal(e.Missing, []string{"node-3 (x:1)"}) {
		t.Errorf("%v", err)
	}
	page, err := h.Replay(t.Context(), admin.ReplayQuery{Topic: "orders", Scope: "fleet", Partial: true})
	if err != nil || !slices.Equal(page.Missing, []string{"node-3 (x:1)"}) || len(page.Events) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	var told, events int
	for _, err := range h.ReplayEvents(t.Context(), admin.ReplayQuery{Topic: "orders", Scope: "fleet", Partial: true,
		Missing: func(names []string) { told += len(names) }}) {
		if events++; err != nil {
			t.Fatal(err)
		}
	}
	if told != 2 || events != 2 {
		t.Errorf("told %d times of %d events", told, events)
	}
}

func TestPartialExport(t *testing.T) {
	for _, tc := range []struct {
		trailers bool
		missing  []string
	}{{true, []string{"node-3 (x:1)", "b=c"}}, {false, []string{"early, bird"}}} {
		h := fleetServer(t, tc.trailers)
		var missing []string
		var parts []admin.PartCount
		events := 0
		for _, err := range h.Export(t.Context(), admin.ExportQuery{
			Topic: "orders", Scope: "fleet", Partial: true,
			Missing:  func(names []string) { missing = append(missing, names...) },
			Progress: func(p []admin.PartCount) { parts = append(parts, p...) },
		}) {
			if events++; err != nil {
				t.Fatal(err)
			}
		}
		want := []admin.PartCount{{Part: "store of a", Events: 7}, {Part: "store of b", Events: 7}}
		if events != 2 || !slices.Equal(missing, tc.missing) || !slices.Equal(parts, want) {
			t.Errorf("%d events, missing %q, parts %v", events, missing, parts)
		}
		for _, err := range h.Export(t.Context(), admin.ExportQuery{Topic: "orders", Scope: "fleet"}) {
			if e := new(wire.Error); !errors.As(err, &e) || e.Code != wire.PartialFleet || len(e.Missing) != 1 {
				t.Errorf("%v", err)
			}
		}
	}
}

func TestPeers(t *testing.T) {
	got, err := fleetServer(t, true).Peers(t.Context())
	want := []admin.Peer{{NodeID: "n", Address: "x:1", StoreID: "s", Self: true, Reason: "gone"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
