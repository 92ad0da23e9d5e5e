package manage

import (
	"math"
	"net/http"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// Routes returns the routes.
func Routes(cfg Config) []session.Route {
	m := &handlers{cfg}
	return append(append(m.topicRoutes(), m.groupRoutes()...), m.letterRoutes()...)
}

// read is a route that only reads, and is served while the sidecar stops, too; role is its least one.
func read(role, pattern, summary string, answer httpapi.Content, h session.Handler, query ...httpapi.Param) session.Route {
	return session.Route{Handler: h, WhileStopping: true, Route: httpapi.Route{
		Pattern: "GET /v1/topics" + pattern, Summary: summary, Query: query, Role: role,
		Answers: []httpapi.Answer{{Status: http.StatusOK, Doc: "what there is", Content: answer}},
	}}
}

// The least roles of routes.
const (
	viewer   = string(access.RoleViewer)
	reader   = string(access.RoleReader)
	operator = string(access.RoleOperator)
	admin    = string(access.RoleAdmin)
)

var (
	done    = httpapi.Answer{Status: http.StatusNoContent, Doc: "it is done"}
	lines   = httpapi.Lines(httpapi.Schema{"anyOf": []httpapi.Schema{httpapi.SchemaOf[progressLine](), httpapi.Ref("Error")}})
	ongoing = []httpapi.Answer{{Status: http.StatusOK, Doc: "lines of progress; the last has ok or an error", Content: lines}}
)

func (m *handlers) topicRoutes() []session.Route {
	return []session.Route{
		read(viewer, "", "the topics on which the caller has any right", httpapi.JSONOf[topicList](), session.Answer(m.listTopics),
			paging(httpapi.Text("prefix", "only topics whose names begin so"))...),
		read(viewer, "/{topic}", "a topic, with closer numbers than the list has", httpapi.JSONOf[topicInfo](), session.Answer(m.showTopic)),
		{Handler: m.makeTopic, Route: httpapi.Route{
			Pattern: "PUT /v1/topics/{topic}", Summary: "make a topic", Role: operator,
			Answers: []httpapi.Answer{
				{Status: http.StatusOK, Doc: "it was there", Content: httpapi.JSONOf[madeTopic]()},
				{Status: http.StatusCreated, Doc: "it was made", Content: httpapi.JSONOf[madeTopic]()},
			},
			Errors: []wire.Code{wire.InUse},
		}},
		{Handler: session.Answer(m.deleteTopic), Route: httpapi.Route{
			Pattern: "DELETE /v1/topics/{topic}", Summary: "remove a topic with all that is in it", Role: admin,
			Query:   []httpapi.Param{httpapi.DryRun()},
			Answers: []httpapi.Answer{done, {Status: http.StatusOK, Doc: "of a dry run", Content: httpapi.JSONOf[deletionPlan]()}},
			Errors:  []wire.Code{wire.InUse},
		}},
		{Handler: m.showSchema, WhileStopping: true, Route: httpapi.Route{
			Pattern: "GET /v1/topics/{topic}/schema", Summary: "the schema in force", Role: viewer,
			Headers: []httpapi.Param{
				httpapi.Text("Accept", schemaType+" for the schema alone"), httpapi.Text("If-None-Match", "the ETag of an earlier answer"),
			},
			Answers: []httpapi.Answer{
				{Status: http.StatusOK, Doc: "the schema", Headers: []string{"ETag"},
					Content: httpapi.Content{"application/json": httpapi.SchemaOf[topicSchema](), schemaType: {}}},
				{Status: http.StatusNotModified, Doc: "it is the schema that the client has", Headers: []string{"ETag"}},
			},
		}},
		{Handler: session.Answer(m.planRetention), Route: httpapi.Route{
			Pattern: "GET /v1/topics/{topic}/retention", Summary: "how many events another retention would remove", Role: viewer,
			Query: []httpapi.Param{
				httpapi.Text("ttl", "a duration such as 24h, or 0s for ever"),
				httpapi.Whole("max_bytes", "0: no bound", 0, math.MaxInt64), httpapi.OneOf("compact", "1: only the latest of each key stays", "0", "1"),
			},
			Answers: []httpapi.Answer{{Status: http.StatusOK, Doc: "the number", Content: httpapi.JSONOf[retentionPlan]()}},
		}},
		read(reader, "/{topic}/events/{id}", "an event with its life", httpapi.JSONOf[life](), session.Answer(m.showEvent)),
		{Handler: m.deleteEvents, Route: httpapi.Route{
			Pattern: "DELETE /v1/topics/{topic}/events", Summary: "erase the event with an id, or all events with a key", Role: admin,
			Query: []httpapi.Param{
				httpapi.Text("id", "the event's id"), httpapi.Text("key", "the events' key"),
			},
			Answers: ongoing,
		}},
		read(viewer, "/{topic}/scheduled", "the events that are not due yet, by time", httpapi.JSONOf[scheduledList](),
			session.Answer(m.listScheduled), paging()...),
		{Handler: m.cancelScheduled, Route: httpapi.Route{
			Pattern: "DELETE /v1/topics/{topic}/scheduled/{id}", Summary: "cancel a scheduled event", Role: operator,
			Answers: []httpapi.Answer{done},
		}},
		{Handler: m.reread, Route: httpapi.Route{
			Pattern: "POST /v1/captures/{topic}/reread", Summary: "publish all documents of the captured collection once more",
			Answers: []httpapi.Answer{{Status: http.StatusAccepted, Doc: "it has begun"}},
		}},
	}
}

func (m *handlers) groupRoutes() []session.Route {
	return []session.Route{
		read(viewer, "/{topic}/groups", "the names of the topic's groups", httpapi.JSONOf[groupList](), session.Answer(m.listGroups)),
		read(viewer, "/{topic}/groups/{group}", "a group with its cursor, lag and members", httpapi.JSONOf[wire.GroupInfo](),
			session.Answer(m.showGroup)),
		{Handler: session.Answer(m.deleteGroup), WhileStopping: true, Route: httpapi.Route{
			Pattern: "DELETE /v1/topics/{topic}/groups/{group}", Summary: "remove a group", Role: admin, Answers: []httpapi.Answer{done},
			Errors: []wire.Code{wire.InUse},
		}},
		{Handler: session.Answer(m.moveGroup), Route: httpapi.Route{
			Pattern: "PUT /v1/topics/{topic}/groups/{group}/cursor", Summary: "move a group", Role: operator,
			Query: []httpapi.Param{httpapi.DryRun()}, Body: httpapi.JSONOf[cursorBody](),
			Answers: []httpapi.Answer{done, {Status: http.StatusOK, Doc: "of a dry run", Content: httpapi.JSONOf[wire.SeekPlan]()}},
			Errors:  []wire.Code{wire.OutOfRange},
		}},
	}
}

func (m *handlers) letterRoutes() []session.Route {
	return []session.Route{
		read(viewer, "/{topic}/dlq", "the topic's dead letters, by the time of death", httpapi.JSONOf[deadLetterList](),
			session.Answer(m.listDeadLetters), paging(
				httpapi.Text("group", "only those of this group", codec.CheckGroup), httpapi.Text("reason", "only those with this whole reason"),
				httpapi.OneOf("order", "the latest or the earliest first", "desc", "asc").Or("desc"))...),
		{Handler: m.changeDead(m.planRedrive), Route: httpapi.Route{
			Pattern: "POST /v1/topics/{topic}/dlq/redrive", Summary: "deliver dead letters once more", Role: operator,
			Body: httpapi.JSONOf[deadSelection](), Answers: ongoing, Errors: []wire.Code{wire.Conflict},
		}},
		{Handler: m.changeDead(m.planDiscard), Route: httpapi.Route{
			Pattern: "POST /v1/topics/{topic}/dlq/discard", Summary: "remove dead letters", Role: admin,
			Body: httpapi.JSONOf[deadSelection](), Answers: ongoing,
		}},
	}
}
