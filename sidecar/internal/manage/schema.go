package manage

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// schemaType is the media type of the schema alone.
const schemaType = "application/schema+json"

// topicSchema is the schema for a topic's events.
type topicSchema struct {
	Topic         string               `json:"topic"`
	Version       int64                `json:"version"`
	JSONSchema    json.RawMessage      `json:"json_schema"`
	Compatibility policy.Compatibility `json:"compatibility"`
}

// showSchema answers with the schema of a topic, for its publishers and subscribers.
func (m *handlers) showSchema(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
	topic := r.PathValue("topic")
	if err := mayJoin(caller, r); err != nil && caller.May(access.Publish, topic, "") != nil {
		return err
	}
	s := m.Policies.Load().Topic(topic).Schema
	if s.JSONSchema == "" {
		return wire.Errorf(wire.NotFound, "topic %q has no schema: no policy that holds for it sets schema.json_schema", topic)
	}
	text := json.RawMessage(s.JSONSchema)
	// A file's schemas all have version 1, and a topic's may come from another policy.
	sum := sha256.Sum256(text)
	etag := fmt.Sprintf(`"%d-%x"`, s.Version, sum[:8])
	h := w.Header()
	h.Set("ETag", etag)
	h.Set("Vary", "Accept")
	if names(r.Header.Values("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if accepts(r, schemaType) {
		h.Set("Content-Type", schemaType)
		_, _ = w.Write(text) // a client that does not take its answer has gone
		return nil
	}
	return httpapi.WriteValue(w, http.StatusOK, topicSchema{topic, s.Version, text, s.Compatibility})
}

// names reports whether lists of entity tags name a tag, by weak comparison.
func names(lists []string, etag string) bool {
	for _, list := range lists {
		for tag := range strings.SplitSeq(list, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
				return true
			}
		}
	}
	return false
}

// accepts reports whether the Accept header of a request names a media type.
func accepts(r *httpapi.Request, kind string) bool {
	for _, list := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(list, ",") {
			if given, params, err := mime.ParseMediaType(one); err == nil && given == kind && params["q"] != "0" {
				return true
			}
		}
	}
	return false
}
