package ingest

import (
	"net/http"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// Routes returns the routes that publish. They count what they refuse.
func Routes(cfg Config) []session.Route {
	h := &handlers{cfg}
	routes := []session.Route{
		{Handler: h.publishHTTP, Route: httpapi.Route{
			Pattern: "POST /v1/topics/{topic}/events", Summary: "publish the body as an event, or a batch", Headers: eventHeaders, Body: published,
			Role: string(access.RoleOperator),
			Answers: []httpapi.Answer{
				{Status: http.StatusOK, Doc: "the topic held it before; or the results of a batch", Content: httpapi.JSON(httpapi.Schema{
					"anyOf": []httpapi.Schema{httpapi.SchemaOf[receipt](), httpapi.ResultsOf[receipt]()["application/json"]},
				})},
				{Status: http.StatusCreated, Doc: "it is stored", Content: httpapi.JSONOf[receipt]()},
				{Status: http.StatusAccepted, Doc: "it is in the spool, or scheduled", Content: httpapi.JSONOf[receipt]()},
			},
		}},
	}
	for _, method := range []string{"POST ", "PUT "} {
		routes = append(routes,
			h.daprRoute(method+"/v1.0/publish/{pubsub}/{topic}", h.publishDapr, eventHeaders, daprPublished),
			h.daprRoute(method+"/v1.0/publish/bulk/{pubsub}/{topic}", h.publishDaprBulk, nil, httpapi.JSONOf[[]daprEntry](), partly),
			h.daprRoute(method+"/v1.0-alpha1/publish/bulk/{pubsub}/{topic}", h.publishDaprBulk, nil, httpapi.JSONOf[[]daprEntry](), partly),
		)
	}
	for i := range routes {
		routes[i].Errors = []wire.Code{
			wire.Conflict, wire.RateLimited, wire.TopicPaused, wire.SchemaViolation, wire.NotFound,
		}
		routes[i].Refused = func(topic string, code wire.Code) { h.Publisher.Refused(topic, code, 1) }
	}
	return append(routes, h.daprState()...)
}

// partly is the answer to a bulk of which entries were refused.
var partly = httpapi.Answer{
	Status: http.StatusInternalServerError, Doc: "the entries that were refused", Content: httpapi.JSONOf[daprFailures](),
}

func (h *handlers) daprRoute(
	pattern string, serve session.Handler, headers []httpapi.Param, body httpapi.Content, answers ...httpapi.Answer,
) session.Route {
	return session.Route{Handler: serve, Route: httpapi.Route{
		Pattern: pattern, Summary: "publish as clients of Dapr do", Headers: headers, Body: body, Optional: true,
		Query:   []httpapi.Param{{Name: metadataPrefix + "*", Doc: "Dapr's metadata", Schema: httpapi.Schema{"type": "string"}}},
		Answers: append(answers, httpapi.Answer{Status: http.StatusNoContent, Doc: "all is stored"}),
	}}
}

// eventHeaders are the request headers that say something of the event.
var eventHeaders = []httpapi.Param{
	httpapi.Text(headerIdempotencyKey, "the event's id"),
	httpapi.Text(headerID, "the event's id"),
	{Name: headerKey, Doc: "the event's key", Schema: httpapi.Schema{"type": "string"}},
	{Name: headerKey + "*", Doc: "the same, encoded as RFC 8187 has it", Schema: httpapi.Schema{"type": "string"}},
	httpapi.Whole(headerTS, "the event's time, in milliseconds since the epoch", 0, wire.MaxTS),
	httpapi.Whole(headerTTL, "for how many milliseconds after acceptance it is delivered", 1, wire.MaxTTLMS),
	httpapi.Whole(headerDeliverAt, "when it is due, in milliseconds since the epoch", 0, wire.MaxTS),
	httpapi.Whole(headerDelay, "in how many milliseconds it is due", 0, wire.MaxLaterMS),
	{Name: headerPrefix + "*", Doc: "the event's header of the name that follows", Schema: httpapi.Schema{"type": "string"}},
	{Name: cePrefix + "*", Doc: "a CloudEvent's attribute", Schema: httpapi.Schema{"type": "string"}},
	{Name: "Traceparent", Doc: "W3C trace context", Schema: httpapi.Schema{"type": "string"}},
	{Name: "Tracestate", Doc: "W3C trace context", Schema: httpapi.Schema{"type": "string"}},
	{Name: "Baggage", Doc: "W3C baggage", Schema: httpapi.Schema{"type": "string"}},
}

// published are the bodies of a publish.
var published = httpapi.Content{
	mediaJSON:              {},
	"application/x-ndjson": httpapi.SchemaOf[publishLine](),
	mediaStructured:        {"type": "object"},
	mediaBatched:           httpapi.ArrayOf(httpapi.Schema{"type": "object"}),
	"*/*":                  {},
}

// daprPublished are the bodies of a publish as Dapr has it, which is always one event.
var daprPublished = httpapi.Content{mediaJSON: {}, mediaStructured: {"type": "object"}, "*/*": {}}

// The bodies, as package codec reads and writes them.
type (
	publishLine struct {
		Payload       any         `json:"payload,omitempty"`
		PayloadBase64 string      `json:"payload_base64,omitempty"`
		Opts          publishOpts `json:"opts,omitzero"`
	}
	publishOpts struct {
		ID        string            `json:"id,omitempty"`
		TS        int64             `json:"ts,omitempty"`
		Key       string            `json:"key,omitempty"`
		Headers   map[string]string `json:"headers,omitempty"`
		Tags      []string          `json:"tags,omitempty"`
		CausedBy  []string          `json:"caused_by,omitempty"`
		SID       string            `json:"sid,omitempty"`
		TTLMS     int64             `json:"ttl_ms,omitempty"`
		DeliverAt int64             `json:"deliver_at,omitempty"`
		DelayMS   int64             `json:"delay_ms,omitempty"`
	}
	receipt struct {
		ID         string `json:"id"`
		TS         int64  `json:"ts,omitempty"`
		Partition  int    `json:"partition,omitempty"`
		Seq        uint64 `json:"seq,omitempty"`
		DeliverAt  int64  `json:"deliver_at,omitempty"`
		Duplicate  bool   `json:"duplicate,omitempty"`
		Durability string `json:"durability"`
	}
)
