package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

type schemaAsyncAPICommand struct {
	Topics     []string `arg:"" name:"TOPIC" help:"The topics."`
	Title      string   `default:"Sluice" help:"The title of the document."`
	APIVersion string   `name:"api-version" default:"1.0.0" help:"The version that the document says it has."`
}

func (*schemaAsyncAPICommand) Help() string {
	return `Prints an AsyncAPI 3.0 document: a channel for each topic, with the schema that the
sidecar holds its payloads to. A topic without a schema has messages of any JSON.

Examples:

  sluice schema asyncapi orders.created payments --title Shop > asyncapi.json`
}

// object is a JSON object.
type object = map[string]any

// Run prints the document.
func (s *schemaAsyncAPICommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	channels, operations, messages, schemas := object{}, object{}, object{}, object{}
	for _, topic := range s.Topics {
		if bad := codec.CheckTopic(topic); bad != nil {
			return program.Usagef("%s", bad.Msg)
		}
		message := object{"name": topic, "contentType": "application/json"}
		switch is, err := topicSchema(ctx, c, h, topic); {
		case isNotFound(err):
		case err != nil:
			return err
		default:
			message["payload"] = refTo("components/schemas", topic)
			message["headers"] = object{"type": "object", "properties": object{wire.HeaderSchemaVersion: object{
				"type": "string", "description": fmt.Sprintf("The version of the schema that validated the event; %d when this was written.",
					is.Version)}}}
			if schemas[topic], err = embedded(is); err != nil {
				return err
			}
		}
		messages[topic] = message
		channels[topic] = object{"address": topic, "messages": object{topic: refTo("components/messages", topic)}}
		for _, action := range []string{"send", "receive"} {
			operations[action+"-"+topic] = object{"action": action, "channel": refTo("channels", topic)}
		}
	}
	document := object{
		"asyncapi": "3.0.0", "info": object{"title": s.Title, "version": s.APIVersion}, "defaultContentType": "application/json",
		"channels": channels, "operations": operations, "components": object{"messages": messages, "schemas": schemas},
	}
	if server := serverOf(c.URL); server != nil {
		document["servers"] = object{"sidecar": server}
	}
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return printIndented(app, c, text)
}

func refTo(place, name string) object { return object{"$ref": "#/" + place + "/" + name} }

// serverOf is the sidecar's WebSocket; nil where no address leads to it.
func serverOf(address string) object {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil
	}
	protocol := "ws"
	if u.Scheme == "https" || u.Scheme == "wss" {
		protocol = "wss"
	}
	return object{"host": u.Host, "protocol": protocol, "pathname": "/ws"}
}

// formats are what AsyncAPI calls the drafts, by what "$schema" says of them.
var formats = []struct{ part, version string }{
	{"draft-04", "draft-04"}, {"draft-06", "draft-06"}, {"draft-07", "draft-07"}, {"2019-09", "draft-2019-09"}, {"", "draft-2020-12"},
}

// embedded is a schema as a part of a document.
func embedded(is admin.TopicSchema) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(is.JSONSchema))
	dec.UseNumber()
	var text any
	if err := dec.Decode(&text); err != nil {
		return nil, fmt.Errorf("the schema of topic %s: %w", is.Topic, err)
	}
	members, _ := text.(object)
	draft, _ := members["$schema"].(string)
	for _, f := range formats {
		if !strings.Contains(draft, f.part) {
			continue
		}
		if members["$id"] == nil && members["id"] == nil { // else it is a document of its own inside of this one
			moveRefs(text, "#/components/schemas/"+is.Topic+"/schema")
		}
		return object{"schemaFormat": "application/schema+json;version=" + f.version, "schema": text}, nil
	}
	panic("sluice: the last format fits every draft")
}

// moveRefs changes the references of a schema into itself, so that they lead to its new place.
func moveRefs(schema any, place string) {
	switch s := schema.(type) {
	case []any:
		for _, one := range s {
			moveRefs(one, place)
		}
	case object:
		if ref, ok := s["$ref"].(string); ok && (ref == "#" || strings.HasPrefix(ref, "#/")) {
			s["$ref"] = place + ref[1:]
		}
		for keyword, value := range s {
			switch keyword {
			case "enum", "const", "default", "examples": // values, not schemas
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
				named, _ := value.(object)
				for _, one := range named {
					moveRefs(one, place)
				}
			default:
				moveRefs(value, place)
			}
		}
	}
}
