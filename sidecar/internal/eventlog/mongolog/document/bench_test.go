package document

import (
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// benchmarkRecord has an object of 300 bytes for its payload.
func benchmarkRecord() *eventlog.Record {
	const payload = `{"order_id":"0197c6a2-7e6b-7cc0-9a51-0242ac120002","customer":{"id":17,"name":"Ada Lovelace","vip":true},` +
		`"currency":"EUR","total":1234.56,"items":[{"sku":"AB-1001","qty":2,"price":19.99},{"sku":"CD-2002","qty":1,"price":1194.58}],` +
		`"created_at":1723140000000,"note":null,"address":"12 St James's Square, SW1"}`
	return &eventlog.Record{AcceptedAt: 1723140000001, Event: wire.Event{
		ID: "0197c6a2-7e6b-7cc0-9a51-0242ac120002", TS: 1723140000000, Topic: "orders.created", Partition: 3, Seq: 1042, Key: "customer-17",
		Headers: wire.Headers{{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}, Payload: []byte(payload),
	}}
}

func BenchmarkAppend(b *testing.B) {
	r := benchmarkRecord()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = Append(dst[:0], r.Topic, 0, r, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHash is the part of BenchmarkAppend that is spent on the hash.
func BenchmarkHash(b *testing.B) {
	r := benchmarkRecord()
	b.ReportAllocs()
	for b.Loop() {
		codec.ContentHash(&r.Event)
	}
}

func BenchmarkPayload(b *testing.B) {
	r := benchmarkRecord()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = appendValue(dst[:0], FieldPayload, r.Payload)
	}
}

func BenchmarkDecode(b *testing.B) {
	r := benchmarkRecord()
	doc, err := Append(nil, r.Topic, 0, r, 1)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(doc); err != nil {
			b.Fatal(err)
		}
	}
}
