package httpapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Description is what the description of a listener has beside its routes.
type Description struct {
	Title, Version string
	Paths          []Param // the names in paths
	// Schemas are those that the routes refer to by name, beside Error, Event and Events.
	Schemas map[string]Schema
}

// DescriptionPath is where a listener describes itself for machines.
const DescriptionPath = "/v1/openapi.json"

// everyRoute are the codes that every route may answer with, and bodyRoute those of a route with a
// body.
var (
	everyRoute = []wire.Code{wire.BadRequest, wire.Unauthorized, wire.Forbidden, wire.Internal}
	bodyRoute  = []wire.Code{wire.BadJSON, wire.PayloadTooLarge, wire.Overloaded}
)

// Describe adds the route that describes the others, and itself, as OpenAPI 3.1 does.
func Describe(d Description, routes []Route) []Route {
	var text []byte
	routes = append(routes, Route{
		Pattern: "GET " + DescriptionPath, Summary: "this description",
		Answers: []Answer{{Status: http.StatusOK, Doc: "an OpenAPI 3.1 document", Content: JSON(Schema{"type": "object"})}},
		Serve: func(w http.ResponseWriter, r *Request, bad error) {
			if bad != nil {
				refuse(w, r.Request, wire.AsError(bad))
				return
			}
			WriteJSON(w, http.StatusOK, text)
		},
	})
	text, err := json.Marshal(d.document(routes))
	text = append(text, '\n') // before requests share it
	if err != nil {
		panic(err) // schemas are maps, lists and texts
	}
	text = slices.Clip(text) // WriteJSON appends to it
	return routes
}

// document is the description as OpenAPI has it.
func (d *Description) document(routes []Route) map[string]any {
	paths := map[string]map[string]any{}
	for i := range routes {
		t := &routes[i]
		if t.Unchecked {
			continue
		}
		method, path, _ := strings.Cut(t.Pattern, " ")
		path = strings.TrimSuffix(path, "{$}")
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		paths[path][strings.ToLower(method)] = d.operation(t, path)
	}
	schemas := map[string]Schema{
		"Error": errorSchema(), "Event": eventSchema(), "CloudEvent": cloudEventSchema(), "Events": ArrayOf(Ref("Formatted")),
		"Formatted": {"anyOf": []Schema{Ref("Event"), Ref("CloudEvent")}}, // as the parameter format says
	}
	maps.Copy(schemas, d.Schemas)
	return map[string]any{
		"openapi": "3.1.0",
		"info":    map[string]any{"title": d.Title, "version": d.Version},
		"paths":   paths,
		"components": map[string]any{
			"schemas":         schemas,
			"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer"}},
		},
		"security": []map[string][]string{{}, {"token": {}}}, // a token is needed where the server asks for one
	}
}

func (d *Description) operation(t *Route, path string) map[string]any {
	var params []map[string]any
	for part := range strings.SplitSeq(path, "/") {
		if name, is := strings.CutPrefix(part, "{"); is {
			name = strings.TrimSuffix(name, "}")
			p := find(d.Paths, name)
			if p == nil {
				panic("httpapi: a path has " + name + ", which is not described")
			}
			params = append(params, p.describe("path"))
		}
	}
	for i := range t.Query {
		params = append(params, t.Query[i].describe("query"))
	}
	for i := range t.Headers {
		params = append(params, t.Headers[i].describe("header"))
	}
	op := map[string]any{"summary": t.Summary, "responses": t.answers()}
	if len(params) > 0 {
		op["parameters"] = params
	}
	if t.Body != nil {
		op["requestBody"] = map[string]any{"required": !t.Optional, "content": t.Body.describe()}
	}
	return op
}

func (p *Param) describe(in string) map[string]any {
	schema := p.Schema
	if p.Default != "" {
		schema = maps.Clone(schema)
		schema["default"] = p.Default
		if n, err := strconv.ParseInt(p.Default, 10, 64); err == nil && schema["type"] == "integer" {
			schema["default"] = n
		}
	}
	if p.Repeated {
		schema = ArrayOf(schema)
	}
	out := map[string]any{"name": p.Name, "in": in, "description": p.Doc, "schema": schema}
	if in == "path" {
		out["required"] = true
	}
	return out
}

func (c Content) describe() map[string]any {
	out := map[string]any{}
	for kind, schema := range c {
		out[kind] = map[string]any{"schema": schema}
	}
	return out
}

// answers are the answers of a route: its own, and those to requests that it refuses.
func (t *Route) answers() map[string]any {
	out := map[string]any{}
	for _, a := range t.Answers {
		answer := map[string]any{"description": a.Doc}
		if len(a.Headers) > 0 {
			answer["headers"] = headers(a.Headers...)
		}
		if a.Content != nil {
			answer["content"] = a.Content.describe()
		}
		out[strconv.Itoa(a.Status)] = answer
	}
	codes := append(slices.Clone(everyRoute), t.Errors...)
	if t.Body != nil {
		codes = append(codes, bodyRoute...)
	}
	byStatus := map[int][]wire.Code{}
	for _, code := range codes {
		if status := code.HTTPStatus(); !slices.Contains(byStatus[status], code) {
			byStatus[status] = append(byStatus[status], code)
		}
	}
	if t.Body != nil {
		byStatus[http.StatusUnsupportedMediaType] = []wire.Code{wire.BadRequest}
	}
	for status, codes := range byStatus {
		slices.Sort(codes)
		schema := Ref("Error")
		schema["properties"] = Schema{"code": Schema{"enum": codes}}
		if own := t.answer(status); own != nil {
			schema = Schema{"anyOf": []Schema{schema, own}}
		}
		answer := map[string]any{"description": "refused: " + strings.ToLower(http.StatusText(status)), "content": JSON(schema).describe()}
		switch status {
		case http.StatusUnauthorized:
			answer["headers"] = headers("WWW-Authenticate")
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			answer["headers"] = headers("Retry-After")
		}
		out[strconv.Itoa(status)] = answer
	}
	return out
}

// answer is the schema of the route's own JSON answer with a status that refusals have, too; nil: none.
func (t *Route) answer(status int) Schema {
	for _, a := range t.Answers {
		if a.Status == status {
			return a.Content["application/json"]
		}
	}
	return nil
}

func headers(names ...string) map[string]any {
	out := map[string]any{}
	for _, name := range names {
		out[name] = map[string]any{"schema": Schema{"type": "string"}}
	}
	return out
}

// errorSchema is the schema of every error's body, as codec.AppendErrorBody writes it.
func errorSchema() Schema {
	return SchemaOf[struct {
		Error        string            `json:"error"`
		Code         string            `json:"code"`
		RetryAfterMS int64             `json:"retry_after_ms,omitempty"`
		Scope        string            `json:"scope,omitempty"`
		Reason       string            `json:"reason,omitempty"`
		Seq          uint64            `json:"seq,omitempty"`
		Fields       []wire.FieldError `json:"fields,omitempty"`
		Missing      []string          `json:"missing,omitempty"`
		Pointer      string            `json:"pointer,omitempty"`
		ErrorCode    string            `json:"errorCode,omitempty"` // these two at Dapr's paths
		Message      string            `json:"message,omitempty"`
	}]()
}

// cloudEventSchema is the schema of a CloudEvent, whose extensions have any name.
func cloudEventSchema() Schema {
	return Schema{"type": "object", "required": []string{"specversion", "id", "source", "type"}}
}

// eventSchema is the schema of an event, as codec.AppendEventJSON writes it.
func eventSchema() Schema {
	return SchemaOf[struct {
		ID            string            `json:"id"`
		TS            int64             `json:"ts"`
		Topic         string            `json:"topic"`
		Partition     int               `json:"partition,omitempty"` // these two not while it is spooled
		Seq           uint64            `json:"seq,omitempty"`
		Key           string            `json:"key,omitempty"`
		Headers       map[string]string `json:"headers,omitempty"`
		Tags          []string          `json:"tags,omitempty"`
		CausedBy      []string          `json:"caused_by,omitempty"`
		SID           string            `json:"sid,omitempty"`
		TTLMS         int64             `json:"ttl_ms,omitempty"`
		Payload       any               `json:"payload,omitempty"`
		PayloadBase64 string            `json:"payload_base64,omitempty"`
		Spooled       bool              `json:"spooled,omitempty"`
	}]()
}
