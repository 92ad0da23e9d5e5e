package injector

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sdk/wire"
)

const (
	// maxReviewBytes is more than a pod that the API server takes, 3 MiB, and what it adds.
	maxReviewBytes = 8 << 20
	// drain is how long reviews may go on once the injector stops: an API server waits no longer.
	drain = 10 * time.Second

	reviewVersion, reviewKind = "admission.k8s.io/v1", "AdmissionReview"
)

// review is an AdmissionReview, the question or the answer.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID  string `json:"uid"`
	Kind struct {
		Kind string `json:"kind"`
	} `json:"kind"`
	Namespace string          `json:"namespace"`
	Operation string          `json:"operation"`
	DryRun    bool            `json:"dryRun"`
	Object    json.RawMessage `json:"object"`
}

type response struct {
	UID       string   `json:"uid"`
	Allowed   bool     `json:"allowed"`
	PatchType string   `json:"patchType,omitempty"`
	Patch     []byte   `json:"patch,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
	Status    *status  `json:"status,omitempty"`
}

// status is why a pod is refused.
type status struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Run serves the webhook until ctx ends. ready is called with the address bound.
func (c Config) Run(ctx context.Context, ready func(address string) error) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if _, err := c.certificate(nil); err != nil {
		return &setting.Error{Err: err}
	}
	ln, err := listen.On(ctx, c.Listen)
	if err != nil {
		return &setting.Error{Err: fmt.Errorf("listen: %w", err)}
	}
	if err := ready(listen.Address(ln)); err != nil {
		_ = ln.Close()
		return err
	}
	server := httpapi.Server{Handler: c.handler(), Logger: c.Logger, DrainTimeout: drain}
	return server.Serve(ctx, c.secure(ln))
}

// secure puts TLS on a listener.
func (c Config) secure(ln net.Listener) net.Listener {
	return tls.NewListener(ln, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: c.certificate,
	})
}

// certificate reads the files for each connection, of which API servers make few: a renewed certificate needs no restart.
func (c Config) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("tls-cert, tls-key: %w", err)
	}
	return &pair, nil
}

func (c Config) handler() http.Handler {
	ok := func(w http.ResponseWriter, _ *httpapi.Request, _ error) { _, _ = io.WriteString(w, "ok\n") }
	routes := []httpapi.Route{
		{Pattern: "POST /inject", Summary: "answers an AdmissionReview about a pod", Unchecked: true, Serve: c.serve},
		{Pattern: "GET /healthz", Summary: "the process runs", Unchecked: true, Serve: ok},
		{Pattern: "GET /readyz", Summary: "pods are injected", Unchecked: true, Serve: ok},
	}
	return httpapi.NewRouter(httpapi.About{Program: "sluice-injector", Version: c.Version}.Add(routes))
}

func (c Config) serve(w http.ResponseWriter, r *httpapi.Request, _ error) {
	var asked review
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReviewBytes)).Decode(&asked); err != nil {
		httpapi.WriteError(w, r.Request, wire.Errorf(wire.BadJSON, "the body is no AdmissionReview: %v", err), c.Logger)
		return
	}
	answer, err := c.answer(asked)
	if err != nil {
		httpapi.WriteError(w, r.Request, err, c.Logger)
		return
	}
	_ = httpapi.WriteValue(w, http.StatusOK, review{APIVersion: reviewVersion, Kind: reviewKind, Response: answer}) // it has a JSON text
}

// answer answers a review. The error says that it is none of a pod.
func (c Config) answer(asked review) (*response, error) {
	q := asked.Request
	switch {
	case asked.APIVersion != reviewVersion || asked.Kind != reviewKind:
		return nil, wire.Errorf(wire.BadRequest, "apiVersion and kind: must be %s and %s, not %q and %q",
			reviewVersion, reviewKind, asked.APIVersion, asked.Kind)
	case q == nil || q.UID == "":
		return nil, wire.Errorf(wire.BadRequest, "request.uid: is missing")
	case q.Kind.Kind != "Pod" || q.Operation != "CREATE":
		return nil, wire.Errorf(wire.BadRequest, "request: must be the CREATE of a Pod, not the %s of a %s: see the webhook's rules",
			q.Operation, q.Kind.Kind)
	}
	var p pod
	if err := json.Unmarshal(q.Object, &p); err != nil {
		return nil, wire.Errorf(wire.BadRequest, "request.object: is no pod: %v", err)
	}
	log := c.Logger.With("namespace", q.Namespace, "pod", p.title(), "dry_run", q.DryRun)
	patch, warnings, err := c.inject(&p)
	if err != nil {
		log.Warn("pod refused", "reason", err)
		return &response{UID: q.UID, Status: &status{http.StatusUnprocessableEntity, "Invalid", "sluice: " + err.Error()}}, nil
	}
	a := &response{UID: q.UID, Allowed: true, Warnings: warnings}
	if len(patch) > 0 {
		a.PatchType = "JSONPatch"
		a.Patch, err = json.Marshal(patch)
		log.Info("sidecar injected")
	}
	return a, err
}
