package daprapp

import (
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/internal/daprpb"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/cloudevent"
)

const (
	// plainType is Dapr's type of an event that was not published as a CloudEvent.
	plainType = "com.dapr.event.sent"
	// rawContentType is the type of raw payloads.
	rawContentType = "application/octet-stream"
)

// envelope is an event as the CloudEvent that Dapr makes of it.
type envelope struct{ *cloudevent.Envelope }

// wrap makes the envelope of an event; appID is the source of events that do not name one.
func wrap(ev *wire.Event, appID string, s *Subscription) envelope {
	traceID, _ := ev.Headers.Get("traceparent") // Dapr's own name for it
	e := envelope{cloudevent.Of(ev, appID, plainType, cloudevent.Attribute{Name: "topic", Value: ev.Topic},
		cloudevent.Attribute{Name: "pubsubname", Value: s.PubsubName}, cloudevent.Attribute{Name: "traceid", Value: traceID})}
	// A dead letter has an id of its own, and its application knows the event's.
	if id, dead := ev.Headers.Get(wire.HeaderDeadID); dead && e.ID == ev.ID {
		e.ID = id
	}
	if s.Raw {
		e.ContentType, e.Binary = rawContentType, true
	}
	return e
}

// extensions are the attributes that have no field of their own over gRPC.
func (e envelope) extensions() *structpb.Struct {
	fields := make(map[string]*structpb.Value, len(e.Others))
	for _, a := range e.Others {
		fields[a.Name] = structpb.NewStringValue(strings.ToValidUTF8(a.Value, "\uFFFD"))
	}
	return &structpb.Struct{Fields: fields}
}

// request is the CloudEvent over gRPC.
func (e envelope) request(topic, pubsub, path string) *daprpb.TopicEventRequest {
	return &daprpb.TopicEventRequest{
		Id: e.ID, Source: e.Source, Type: e.Type, SpecVersion: cloudevent.SpecVersion, DataContentType: e.ContentType, Data: e.Payload,
		Topic: topic, PubsubName: pubsub, Path: path, Extensions: e.extensions(),
	}
}

// TopicEvent is an event as Dapr gives it to a client that has subscribed by a stream.
func TopicEvent(ev *wire.Event, appID string, s *Subscription) *daprpb.TopicEventRequest {
	return wrap(ev, appID, s).request(s.Topic, s.PubsubName, "")
}
