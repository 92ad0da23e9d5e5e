package codec

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestPullRoundTrip(t *testing.T) {
	window, ts, ordered, key := 7, int64(9), false, "k"
	for _, p := range []Pull{
		{Max: 1, WaitMS: 0},
		{Max: wire.MaxPull, WaitMS: wire.MaxPullWaitMS, Subscribe: wire.SubscribeOptions{
			From: wire.FromTS, TS: &ts, MaxInflight: &window, Ordered: &ordered, ExactlyOnce: true, AutoAck: true,
			Filter: &wire.Filter{Key: &key, Headers: wire.Headers{{Name: "a", Value: "b"}}},
		}},
	} {
		got, err := DecodePull(AppendPull(nil, &p), wire.DefaultLimits())
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%+v became %+v, %v", p, got, err)
		}
	}
	if p, err := DecodePull([]byte(" \n"), wire.DefaultLimits()); err != nil || p.Max != wire.DefaultPull ||
		p.WaitMS != wire.DefaultPullWaitMS {
		t.Errorf("an empty body: %+v, %v", p, err)
	}
	if p, err := DecodePull([]byte(`{"max":null,"opts":null,"max":3}`), wire.DefaultLimits()); err != nil || p.Max != 3 {
		t.Errorf("members that count for nothing: %+v, %v", p, err)
	}
}

func TestSettlementRoundTrip(t *testing.T) {
	ms := int64(5)
	for op, want := range map[string]Settlement{
		wire.OpAck: {Leases: []string{"x", `"`}}, wire.OpNack: {Leases: []string{"x"}, Nack: wire.Nack{Reason: "no", DelayMS: &ms, Hold: true}},
		wire.OpModAck: {Leases: []string{"x"}, ExtendMS: &ms},
	} {
		got, err := DecodeSettlement(op, AppendSettlement(nil, &want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v became %+v, %v", op, want, got, err)
		}
	}
	many := `{"leases":[` + strings.Repeat(`"x",`, wire.MaxSettleIDs) + `"x"]}`
	long := `{"leases":["x"],"reason":"` + strings.Repeat("x", wire.MaxReasonBytes+1) + `"}`
	for body, code := range map[string]wire.Code{many: wire.BadRequest, long: wire.BadRequest, `{"leases":["\ud800"]}`: wire.BadRequest,
		`{"leases":`: wire.BadJSON, `"x"`: wire.BadRequest} {
		if _, err := DecodeSettlement(wire.OpNack, []byte(body)); err == nil || err.Code != code {
			t.Errorf("%.40s: %v", body, err)
		}
	}
}

func TestPulledRoundTrip(t *testing.T) {
	e := wire.Event{ID: "a", TS: 1, Topic: "t", Partition: 2, Seq: 3, Payload: []byte(`{"n":1.50}`)}
	body := AppendPulledStart(nil)
	body = AppendPulledItem(body, AppendEventJSON, &e, 2, 100, "L1")
	body = AppendEventsEnd(AppendPulledItem(body, AppendEventJSON, &e, 1, 0, "L2"))
	ds, err := ParsePulled(body)
	want := []wire.Delivery{{Event: e, Attempt: 2, AckDeadlineMS: 100, Lease: "L1"}, {Event: e, Attempt: 1, Lease: "L2"}}
	if err != nil || !reflect.DeepEqual(ds, want) || !json.Valid(body) {
		t.Errorf("%s became %+v, %v", body, ds, err)
	}
	results := AppendSettled(nil, []*wire.Error{nil, wire.Errorf(wire.StaleLease, "over")})
	errs, err := ParseSettled(results)
	if err != nil || len(errs) != 2 || errs[0] != nil || errs[1].Code != wire.StaleLease ||
		string(results) != `{"results":[{"ok":true},{"code":"stale_lease","error":"over"}]}` {
		t.Errorf("%s became %v, %v", results, errs, err)
	}
	for _, broken := range []string{``, `[]`, `{"events":[{"event":{"id":1}}]}`} {
		if _, err := ParsePulled([]byte(broken)); err == nil {
			t.Errorf("%s is no answer to a pull", broken)
		}
	}
}

func FuzzDecodePull(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"max":5,"wait_ms":1,"opts":{"filter":{"key":"k"}}}`,
		`{"leases":["a"],"extend_ms":1,"delay_ms":null}`, `[`, `{"opts":{"from":"ts"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, bad := DecodePull(body, wire.DefaultLimits())
		if bad == nil && (p.Max < 1 || p.Max > wire.MaxPull || p.WaitMS < 0 || p.WaitMS > wire.MaxPullWaitMS) {
			t.Errorf("%+v", p)
		}
		for _, op := range []string{wire.OpAck, wire.OpNack, wire.OpModAck} {
			s, bad := DecodeSettlement(op, body)
			if bad == nil && (len(s.Leases) == 0 || len(s.Leases) > wire.MaxSettleIDs || op == wire.OpModAck && s.ExtendMS == nil) {
				t.Errorf("%+v", s)
			}
		}
	})
}
