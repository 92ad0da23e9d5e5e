package codec

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// A member that an op does not know is refused, also one that others know; null is absent.
func TestUnknownMembers(t *testing.T) {
	const settles, opts = `"topic":"t","group":"g","id":"a"`, "id, key, headers, tags, caused_by, sid, ttl_ms, deliver_at, delay_ms, ts"
	for _, c := range []struct{ members, more, says string }{
		{`"op":"PING"`, `"topci":"t"`, `"topci" is not known here`}, {`"op":"PING"`, `"topic":"t"`, `"topic" is not known here`},
		{`"op":"AUTH"`, `"tokn":"t"`, `did you mean "token"?`}, {`"op":"AUTH"`, `"group":"g"`, "known are token"},
		{`"op":"UNSUBSCRIBE","topic":"t"`, `"opts":{}`, "known are topic, group"},
		{`"op":"PAUSE","topic":"t"`, `"id":"a"`, "known are topic, group"}, {`"op":"RESUME","topic":"t"`, `"grp":"g"`, `did you mean "group"?`},
		{`"op":"ACK",` + settles, `"reason":"r"`, "known are topic, group, id, ids"}, {`"op":"ACK",` + settles, `"idx":[]`, "did you mean"},
		{`"op":"NACK",` + settles, `"delay":1`, `did you mean "delay_ms"?`}, {`"op":"NACK",` + settles, `"extend_ms":1`, `"extend_ms"`},
		{`"op":"MODACK","extend_ms":1,` + settles, `"hold":true`, `"hold"`},
		{`"op":"SUBSCRIBE","topic":"t"`, `"payload":1`, "known are topic, group, opts"},
		{`"op":"SUBSCRIBE","topic":"t"`, `"opts":{"maxInFlight":1}`, `did you mean "maxInflight"?`},
		{`"op":"SUBSCRIBE","topic":"t"`, `"opts":{"key":"k"}`, `"key" is not known here`},
		{`"op":"SUBSCRIBE","topic":"t"`, `"opts":{"filter":{"tags":"k"}}`, `did you mean "tag"?`},
		{`"op":"PUBLISH","topic":"t","events":[]`, `"opts":{"headers":{"shop":"1"}}`, "takes traceparent, tracestate and baggage in headers"},
		{`"op":"PUBLISH","topic":"t","events":[]`, `"opts":{"headers":{},"id":"a"}`, "takes traceparent"},
		{`"op":"PUBLISH","topic":"t","events":[]`, `"opts":{"hedders":{}}`, "takes traceparent"},
		{`"op":"PUBLISH","topic":"t","payload":1`, `"id":"a"`, "known are topic, events, payload, payload_base64, opts"},
		{`"op":"PUBLISH","topic":"t","payload":1`, `"paylod":1`, `did you mean "payload"?`},
		{`"op":"PUBLISH","topic":"t","payload":1`, `"opts":{"from":"latest"}`, "known are " + opts},
		{`"op":"PUBLISH","topic":"t","payload":1`, `"opts":{"causedBy":[]}`, `did you mean "caused_by"?`},
		{`"op":"PUBLISH","topic":"t"`, `"events":[{"payload":1}],"group":"g"`, `"group" is not known here`},
	} {
		if _, bad := DecodeRequest([]byte(`{`+c.members+`,`+c.more+`}`), wire.DefaultLimits()); bad == nil || bad.Code != wire.BadRequest ||
			!strings.Contains(bad.Msg, c.says) {
			t.Errorf("%s with %s: %v", c.members, c.more, bad)
		}
	}
	for _, ok := range []string{`"op":"PING","corr":"c","topic":null`, `"op":"NACK",` + settles + `,"extend_ms":null`} {
		if _, bad := DecodeRequest([]byte(`{`+ok+`}`), wire.DefaultLimits()); bad != nil {
			t.Errorf("%s: %v", ok, bad)
		}
	}
}

// An event of a batch is refused alone.
func TestUnknownMembersOfABatch(t *testing.T) {
	const events = `{"payload":1,"id":"a"},{"payload":1,"topic":"u"},{"payload":1,"opts":{"idd":"a"}}`
	r, bad := DecodeRequest([]byte(`{"op":"PUBLISH","topic":"t","events":[`+events+`]}`), wire.DefaultLimits())
	if bad != nil || r.Events[0].Err == nil || r.Events[1].Err != nil || r.Events[2].Err == nil {
		t.Errorf("%+v, %v", r.Events, bad)
	}
}

func TestUnknownMembersOfBodies(t *testing.T) {
	lim := wire.DefaultLimits()
	for _, line := range []string{`{"payload":1,"id":"a"}`, `{"payload":1,"topic":"t"}`, `{"payload":1,"opts":{"maxBatch":1}}`} {
		if p := ParsePublishLine([]byte(line), lim); p.Err == nil || p.Err.Code != wire.BadRequest {
			t.Errorf("%s: %+v", line, p)
		}
	}
	for body, says := range map[string]string{
		`{"leases":1}`: "known are max, wait_ms, opts", `{"wait":1}`: `"wait_ms"`, `{"payload":1}`: "payload",
		`{"opts":{"maxBatch":1}}`:     "maxBatch",
		`{"opts":{"rebalance":true}}`: "rebalance", `{"opts":{"id":"a"}}`: "id",
	} {
		if _, bad := DecodePull([]byte(body), lim); bad == nil || !strings.Contains(bad.Msg, says) {
			t.Errorf("%s: %v", body, bad)
		}
	}
	for body, op := range map[string]string{
		`{"leases":["a"],"reason":"r"}`: wire.OpAck, `{"leases":["a"],"extend_ms":1}`: wire.OpNack,
		`{"leases":["a"],"extend_ms":1,"hold":true}`: wire.OpModAck, `{"lease":["a"]}`: wire.OpAck,
	} {
		if _, bad := DecodeSettlement(op, []byte(body)); bad == nil || !strings.Contains(bad.Msg, "is not known here") {
			t.Errorf("%s %s: %v", op, body, bad)
		}
	}
}

func TestDotsAreNoNames(t *testing.T) {
	for _, name := range []string{".", ".."} {
		if CheckID(name) == nil || CheckGroup(name) == nil || CheckTopic(name) == nil || CheckReadTopic(name) == nil {
			t.Error(name)
		}
	}
	if CheckID("...") != nil || CheckGroup("a..b") != nil {
		t.Error("other names of dots")
	}
}
