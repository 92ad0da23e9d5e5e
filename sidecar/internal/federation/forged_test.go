package federation

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/test/require"
)

// A peer sends what is no event, or not one that was asked for: it is named and counts as missing,
// and nothing of it is passed on.
func TestForgedPeerLines(t *testing.T) {
	const good = `{"id":"a","ts":5,"topic":"orders","key":"k","payload":1}`
	key := "k"
	for name, line := range map[string]string{
		"no JSON":                 `{"id":"x","ts":6,"topic":"orders","key":"k","payload":}`,
		"no JSON after its place": `{"id":"x","ts":6,"topic":"orders","key":"k","payload":1}}`,
		"two values":              `{"id":"x","ts":6,"topic":"orders","key":"k","payload":1} {}`,
		"no UTF-8":                "{\"id\":\"x\",\"ts\":6,\"topic\":\"orders\",\"key\":\"k\",\"payload\":\"\xff\"}",
		"no object":               `"x"`,
		"no id":                   `{"ts":6,"topic":"orders","key":"k","payload":1}`,
		"another topic":           `{"id":"x","ts":6,"topic":"secrets","key":"k","payload":1}`,
		"no topic":                `{"id":"x","ts":6,"key":"k","payload":1}`,
		"two topics":              `{"id":"x","ts":6,"topic":"secrets","topic":"orders","key":"k","payload":1}`,
		"two ids":                 `{"id":"x","ts":6,"topic":"orders","id":"y","key":"k","payload":1}`,
		"an escaped second id":    `{"id":"x","ts":6,"topic":"orders","\u0069d":"y","key":"k","payload":1}`,
		"another key":             `{"id":"x","ts":6,"topic":"orders","key":"other","payload":1}`,
		"before what was asked":   `{"id":"x","ts":1,"topic":"orders","key":"k","payload":1}`,
		"after what was asked":    `{"id":"x","ts":99,"topic":"orders","key":"k","payload":1}`,
		"headers that are none":   `{"id":"x","ts":6,"topic":"orders","key":"k","headers":{"a":1},"payload":1}`,
		"too long":                `{"id":"x","ts":6,"topic":"orders","key":"k","payload":"` + strings.Repeat("x", 200_000) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			query := replay.FleetQuery{Topic: topic, Scan: eventlog.ScanQuery{MinTS: 2, MaxTS: 50, Key: &key}}
			open := func(q replay.FleetQuery, text string) (replay.FleetStream, error) {
				forger := &benchMember{who: replay.Peer{NodeID: "mallory", Instance: "m", StoreID: "m"}, text: []byte(text)}
				c := config(newNode("self", "self", newMemory(record(3, "mine", key, "")), nil), Peer{Address: "mallory", NodeID: "mallory"})
				c.MaxLine = 100_000
				f := newFleet(t, c)
				f.reach = func(Peer) member { return forger }
				return f.Open(t.Context(), q)
			}
			_, err := open(query, line+"\n")
			if wantPartial(t, err, "mallory (mallory)"); !strings.Contains(err.Error(),
				"sent something else than the events that it was asked for") {
				t.Error(err)
			}
			partial := query
			partial.Partial = true
			s, err := open(partial, line+"\n")
			got, err := drain(mustHave(t, s, err), 0)
			if err != nil || len(got.places) != 1 || len(s.Missing()) != 1 {
				t.Errorf("with partial=ok: %v, %v, missing %v", got.places, err, s.Missing())
			}
			s, err = open(query, good+"\n"+line+"\n")
			if err != nil { // the line was there before anything was handed out
				wantPartial(t, err, "mallory (mallory)")
				return
			}
			defer s.Close()
			for {
				_, text, err := s.Next()
				if err != nil {
					wantPartial(t, err, "mallory (mallory)")
					return
				}
				if strings.Contains(string(text), `"x"`) {
					t.Fatalf("%.200s is passed on", text)
				}
			}
		})
	}
}

func mustHave(t *testing.T, s replay.FleetStream, err error) replay.FleetStream {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// Another sidecar on the store of one that sends what is no event is asked instead.
func TestForgedLinesAreHadElsewhere(t *testing.T) {
	honest := newNode("b", "region", newMemory(record(5, "x", "", "true")), nil)
	forger := &benchMember{who: replay.Peer{NodeID: "a", Instance: "a", StoreID: "region", Shared: true},
		text: []byte(`{"id":"x","ts":5,"topic":"other","payload":1}` + "\n")}
	c := config(newNode("self", "self", newMemory(), nil), Peer{Address: "a", NodeID: "a"}, Peer{Address: "b", NodeID: "b"})
	f := newFleet(t, c)
	f.reach = func(p Peer) member {
		if p.Address == "a" {
			return forger
		}
		return honest.local()
	}
	honest.who.Shared = true
	for range 10 { // whichever is asked first
		s, err := f.Open(t.Context(), replay.FleetQuery{Topic: topic, Partial: true})
		got, err := drain(mustHave(t, s, err), 0)
		if err != nil || len(got.places) != 1 {
			t.Fatalf("%v, %v", got.places, err)
		}
	}
}

// A peer on another machine is not asked in clear, wherever its address comes from.
func TestNoPeerIsAskedInClear(t *testing.T) {
	c := config(newNode("self", "self", newMemory(), nil), Peer{Address: "192.0.2.1:8083", NodeID: "far"})
	_, err := newFleet(t, c).Open(t.Context(), replay.FleetQuery{Topic: topic})
	if wantPartial(t, err, "far (192.0.2.1:8083)"); !strings.Contains(err.Error(), "no TLS to it (peers.ca or peers.tls in --auth-config)") {
		t.Error(err)
	}
}
