package ingest

import (
	"cmp"
	"net/http"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// Where clients of Dapr ask whether the sidecar is ready. No token is needed.
const (
	DaprHealthPath   = "/v1.0/healthz"
	DaprOutboundPath = "/v1.0/healthz/outbound"
)

// daprMetadataBody is what clients of Dapr read of a sidecar.
type daprMetadataBody struct {
	ID              string          `json:"id"`
	RuntimeVersion  string          `json:"runtimeVersion"`
	EnabledFeatures []string        `json:"enabledFeatures"`
	Actors          []struct{}      `json:"actors"`
	Components      []daprComponent `json:"components"`
	Subscriptions   []struct{}      `json:"subscriptions"`
	Extended        map[string]any  `json:"extended"`
}

type daprComponent struct {
	Name         string   `json:"name"`
	Type         string   `json:"type"`
	Version      string   `json:"version"`
	Capabilities []string `json:"capabilities"`
}

// daprState are the routes by which clients of Dapr look for their sidecar before they publish.
func (h *handlers) daprState() []session.Route {
	health := func(_ *session.Session, w http.ResponseWriter, _ *httpapi.Request) error {
		status := http.StatusNoContent
		if !h.Ready() {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
		return nil
	}
	metadata := daprMetadataBody{
		ID: cmp.Or(h.AppID, h.About.NodeID), RuntimeVersion: h.About.Version, EnabledFeatures: []string{}, Actors: []struct{}{},
		Components:    []daprComponent{{Name: "pubsub", Type: "pubsub.sluice", Version: "v1", Capabilities: []string{}}},
		Subscriptions: []struct{}{}, Extended: map[string]any{},
	}
	return []session.Route{
		{Handler: health, WhileStopping: true, Route: httpapi.Route{Pattern: "GET " + DaprHealthPath, Unchecked: true}},
		{Handler: health, WhileStopping: true, Route: httpapi.Route{Pattern: "GET " + DaprOutboundPath, Unchecked: true}},
		{Route: httpapi.Route{
			Pattern: "GET /v1.0/metadata", Summary: "the sidecar, as clients of Dapr ask for it",
			Answers: []httpapi.Answer{{Status: http.StatusOK, Doc: "the sidecar", Content: httpapi.JSONOf[daprMetadataBody]()}},
		}, Handler: session.Answer(func(*session.Session, http.ResponseWriter, *httpapi.Request) (any, error) { return metadata, nil })},
	}
}
