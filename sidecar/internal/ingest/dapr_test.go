package ingest

import (
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestDaprEntries(t *testing.T) {
	const ce = `{"specversion":"1.0","id":"i","source":"s","type":"t","data":1}`
	for _, tc := range []struct{ entry, want string }{
		{`"event":{"a": 1},"contentType":"application/json"`, `id= ce-pubsub=p json={"a":1}`},
		{`"event":{"a": 1}`, `id= ce-pubsub=p json={"a":1}`},
		{`"event":null`, `id= ce-pubsub=p json=null`},
		{`"event":"a","contentType":"text/plain; charset=utf-8"`, `id= ce-pubsub=p content-type=text/plain; charset=utf-8 bytes=a`},
		{`"event":"<a/>","contentType":"application/xml"`, `id= ce-pubsub=p content-type=application/xml bytes=<a/>`},
		{`"event":"YQ==","contentType":"application/octet-stream"`, `id= ce-pubsub=p content-type=application/octet-stream bytes=a`},
		{`"event":` + ce + `,"contentType":"application/cloudevents+json"`, `id=i ce-pubsub=p ce-source=s ce-specversion=1.0 ce-type=t json=1`},
		{`"event":` + ce + `,"contentType":"application/cloudevents+json","metadata":{"rawPayload":"true"}`, `id= ce-pubsub=p json=` + ce},
		{`"event":1,"metadata":{"partitionKey":"k","cloudevent.id":"m","cloudevent.type":"x"}`, `id=m key=k ce-pubsub=p ce-type=x json=1`},
		{`"event":1,"metadata":{"cloudevent.pubsub":"q"}`, `id= ce-pubsub=q json=1`},
		{`"event":1,"contentType":"text/plain"`, `bad_request: event must be a string where contentType is "text/plain"`},
		{`"event":"*","contentType":"image/png"`, `bad_request: event must be base64 where contentType is "image/png"`},
		{`"event":1,"metadata":{"ttlInSeconds":"5"}`, `id= ttl_ms=5000 ce-pubsub=p json=1`},
		{`"event":1,"metadata":{"ttlInSeconds":"-1"}`,
			`bad_request: metadata.ttlInSeconds is "-1"; a whole number from 1 to 315360000 is allowed`},
		{`"contentType":"application/json"`, `bad_request: event is missing`},
		{`"event":1,"contentTyp":"text/plain"`, `bad_request: member "contentTyp" is not known here (did you mean "contentType"?)`},
		{`"Event":1,"CONTENTTYPE":"application/json"`, `id= ce-pubsub=p json=1`},
	} {
		meta := daprMetadata{attrs: []wire.Header{{Name: "pubsub", Value: "p"}}}
		entries, items, err := daprItems("t", meta, []byte(`[{"entryId":"1",`+tc.entry+`}]`), wire.DefaultLimits())
		if err != nil || len(items) != 1 || entries[0].EntryID != "1" {
			t.Errorf("%s: %v %v", tc.entry, items, err)
			continue
		}
		if got := told(items[0], nil); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.entry, got, tc.want)
		}
	}
}
