package eventlogtest

import (
	"fmt"
	"reflect"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// start is the time of the suite's first events, in milliseconds since the epoch.
const start = int64(1_723_140_000_000)

// Event makes an event with that id; options change it. Two with the same arguments have the same
// content.
func Event(id string, options ...func(*eventlog.Record)) *eventlog.Record {
	r := &eventlog.Record{AcceptedAt: start}
	r.ID, r.TS, r.Payload = id, start, []byte(`{"of":"`+id+`"}`)
	for _, o := range options {
		o(r)
	}
	return r
}

// At gives the event a ts.
func At(ts int64) func(*eventlog.Record) { return func(r *eventlog.Record) { r.TS = ts } }

// Accepted sets when the sidecar accepted the event.
func Accepted(at int64) func(*eventlog.Record) { return func(r *eventlog.Record) { r.AcceptedAt = at } }

// Keyed gives the event a key.
func Keyed(key string) func(*eventlog.Record) { return func(r *eventlog.Record) { r.Key = key } }

// Payload gives the event a payload of JSON text.
func Payload(json string) func(*eventlog.Record) {
	return func(r *eventlog.Record) { r.Payload = []byte(json) }
}

// Events makes n events with ids made of the prefix and a number from 0.
func Events(prefix string, n int, options ...func(*eventlog.Record)) []*eventlog.Record {
	list := make([]*eventlog.Record, n)
	for i := range list {
		list[i] = Event(fmt.Sprintf("%s-%03d", prefix, i), options...)
	}
	return list
}

// sameRecord fails the test unless got is what was stored for want.
func sameRecord(t tester, got, want *eventlog.Record) {
	t.Helper()
	a, b := normal(got), normal(want)
	if !a.Binary && SameJSON(a.Payload, b.Payload) == nil {
		a.Payload = b.Payload // a log may write it differently
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("event differs from the one stored:\n got %+v\nwant %+v", a, b)
	}
}

// normal is the record without differences that do not count: an empty list equals an absent one,
// and FreshID is not stored.
func normal(r *eventlog.Record) eventlog.Record {
	n := *r
	n.FreshID = false
	if len(n.Headers) == 0 {
		n.Headers = nil
	}
	if len(n.Tags) == 0 {
		n.Tags = nil
	}
	if len(n.CausedBy) == 0 {
		n.CausedBy = nil
	}
	n.Payload = append([]byte{}, n.Payload...)
	return n
}

// placed is a copy of the record with its place in a topic.
func placed(r *eventlog.Record, topic string, partition int, seq uint64) *eventlog.Record {
	c := *r
	c.Topic, c.Partition, c.Seq = topic, partition, seq
	return &c
}
