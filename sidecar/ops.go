package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/capture"
	"github.com/sluice-bus/sluice/sidecar/internal/control"
	"github.com/sluice-bus/sluice/sidecar/internal/outbox"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// status is the body of GET /v1/status.
type status struct {
	Version       string              `json:"version"`
	NodeID        string              `json:"node_id"`
	Store         storeStatus         `json:"store"`
	Policies      []policy.InForce    `json:"policies"`
	Connections   int                 `json:"connections"`
	Queues        writer.Depth        `json:"queues"`
	Subscriptions int                 `json:"subscriptions"`
	Spool         telemetry.SpoolStat `json:"spool"`
	BufferedBytes int64               `json:"buffered_bytes"` // memory of all connections
	Disk          telemetry.DiskStat  `json:"disk"`           // of the embedded log, or of the spool
	Outboxes      []outbox.Stats      `json:"outboxes"`
	Captures      []capture.Stats     `json:"captures"`
	ControlPlane  *control.Status     `json:"control_plane"` // null without one
	Peers         []peer              `json:"peers"`
}

type storeStatus struct {
	URL   string `json:"url"`
	ID    string `json:"id"`
	State string `json:"state"` // one of the states below
	// UnmetConcerns are the write concerns of topics whose events are refused, because fewer
	// members of the store acknowledge them than that, by topic.
	UnmetConcerns map[string]string `json:"unmet_concerns,omitempty"`
}

// States of the store.
const (
	stateOK       = "ok"
	stateAway     = "away"      // publishes are spooled, or refused
	stateDraining = "draining"  // it is back, and gets the spooled events
	stateFull     = "full"      // it is away, and the spool is full
	stateDisk     = "disk_full" // the disk has too little room for events
	stateFailed   = "failed"
	stateStarting = "starting"
	stateStopping = "stopping"
)

// startOps serves the ops listener before the store is open, since opening may take long: on a full
// disk, until there is room.
func (s *Sidecar) startOps(ctx context.Context) (err error) {
	const name = "ops-listen"
	if s.ops, err = listen.On(ctx, s.cfg.OpsListen); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	server := s.server(s.ops, s.access.Require(access.Operate, s.opsHandler(), "/healthz", "/readyz"), nil)
	ctx, s.endOps = context.WithCancel(context.WithoutCancel(ctx))
	s.opsServer.Go(func() error { return server.Serve(ctx, s.access.Listener(name, s.bounded(name, s.ops))) })
	return nil
}

// opsHandler serves the ops listener. Until the sidecar is assembled, it reports only that the
// process is alive.
func (s *Sidecar) opsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		switch state, detail := s.storeState(); state {
		case stateDisk:
			httpapi.WriteError(w, r, &wire.Error{Code: wire.Overloaded, Reason: "disk", Msg: detail}, s.cfg.Logger)
		case stateFailed, stateFull, stateStarting, stateStopping:
			httpapi.WriteError(w, r, &wire.Error{Code: wire.StoreUnavailable, Msg: detail}, s.cfg.Logger)
		case stateAway:
			writeText(w, "ready: "+detail+"\n")
		default:
			writeText(w, "ready\n")
		}
	})
	mux.Handle("GET /metrics", s.metrics.Handler())
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(s.status()) // the client went away
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index) // heap, goroutine and the like
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	routes := httpapi.Routes(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.assembled.Load() && r.URL.Path != "/healthz" {
			httpapi.WriteError(w, r, wire.Errorf(wire.StoreUnavailable, "the sidecar is starting: its store is not open yet; on a disk without room, that waits for room"), s.cfg.Logger)
			return
		}
		routes.ServeHTTP(w, r)
	})
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text)) // the client went away
}

// storeState returns whether publishes can be accepted, and if not, why.
func (s *Sidecar) storeState() (state, detail string) {
	if s.stopping.Load() {
		return stateStopping, "the sidecar is stopping"
	}
	if !s.serving.Load() {
		return stateStarting, "the sidecar is starting"
	}
	return s.store.state()
}

// storeURL is the store's URL without secrets.
func (s *Sidecar) storeURL() string {
	if s.store.shared == nil {
		return s.cfg.Store
	}
	return secrets.Without(s.cfg.Store)
}

func (s *Sidecar) disk() telemetry.DiskStat { return telemetry.DiskStat(s.store.space()) }

func (s *Sidecar) status() status {
	state, _ := s.storeState()
	outboxes := []outbox.Stats{} // [] rather than null
	for _, o := range s.outboxes {
		outboxes = append(outboxes, o.Stats())
	}
	captures := []capture.Stats{} // [] rather than null
	for _, c := range s.captures {
		captures = append(captures, c.Stats())
	}
	clients := s.gateway.Stats()
	var controlPlane *control.Status
	if s.control != nil {
		controlPlane = new(s.control.Status())
	}
	return status{
		Version:       s.cfg.Version,
		NodeID:        s.cfg.NodeID,
		Store:         storeStatus{URL: s.storeURL(), ID: s.store.id(), State: state, UnmetConcerns: s.store.unmetConcerns()},
		Policies:      append([]policy.InForce{}, s.policies.Load().List()...), // [] rather than null
		Connections:   clients.Connections,
		Queues:        s.writer.Depth(),
		Subscriptions: clients.Subscriptions,
		Spool:         s.store.waiting(),
		BufferedBytes: s.memory.Used(),
		Disk:          s.disk(),
		Outboxes:      outboxes,
		Captures:      captures,
		ControlPlane:  controlPlane,
		Peers:         s.peers(),
	}
}
