package ops

import (
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/capture"
	"github.com/sluice-bus/sluice/sidecar/internal/control"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway"
	"github.com/sluice-bus/sluice/sidecar/internal/outbox"
	"github.com/sluice-bus/sluice/sidecar/internal/push"
	"github.com/sluice-bus/sluice/sidecar/internal/store"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// Parts are what the status is read from.
type Parts struct {
	Version, NodeID string
	Store           store.Store
	Policies        *policy.Current
	Gateway         *gateway.Gateway
	Writer          *writer.Writer
	Budget          *budget.Budget
	Outboxes        []*outbox.Drainer
	Captures        []*capture.Capture
	Push            *push.Push       // nil without endpoints
	Control         *control.Control // nil without a control plane
	Peers           func() []Peer
}

// Peer is another sidecar's replay API, as far as this one knows without asking it.
type Peer struct {
	NodeID  string `json:"node_id"` // "" if the settings name only an address
	StoreID string `json:"store_id"`
	Address string `json:"address"`
	Gone    bool   `json:"gone,omitempty"` // it has left, or the control plane cannot reach it
}

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
	Push          []push.Stat         `json:"push"`
	ControlPlane  *control.Status     `json:"control_plane"` // null without one
	Peers         []Peer              `json:"peers"`
}

type storeStatus struct {
	URL           string            `json:"url"`
	ID            string            `json:"id"`
	State         store.State       `json:"state"`
	Since         int64             `json:"since"`            // ms since the epoch: when it went away, came back or was opened
	Detail        string            `json:"detail,omitempty"` // what is the matter
	Error         string            `json:"error,omitempty"`  // the last one, of a store that is away or has failed
	UnmetConcerns map[string]string `json:"unmet_concerns,omitempty"`
}

func (s *Server) status() status {
	p, now := s.parts.Load(), s.storeStatus()
	clients := p.Gateway.Stats()
	st := status{
		Version: p.Version, NodeID: p.NodeID,
		Store: storeStatus{
			URL: p.Store.URL(), ID: p.Store.ID(), State: now.State, Since: now.Since.UnixMilli(), Detail: now.Detail,
			UnmetConcerns: now.UnmetConcerns,
		},
		Policies:      append([]policy.InForce{}, p.Policies.Load().List()...), // [] rather than null, as below
		Connections:   clients.Connections,
		Queues:        p.Writer.Depth(),
		Subscriptions: clients.Subscriptions,
		Spool:         now.Spool,
		BufferedBytes: p.Budget.Used(),
		Disk:          now.Disk,
		Outboxes:      []outbox.Stats{},
		Captures:      []capture.Stats{},
		Push:          p.Push.Stats(),
		Peers:         append([]Peer{}, p.Peers()...),
	}
	if now.Err != nil {
		st.Store.Error = now.Err.Error()
	}
	for _, o := range p.Outboxes {
		st.Outboxes = append(st.Outboxes, o.Stats())
	}
	for _, c := range p.Captures {
		st.Captures = append(st.Captures, c.Stats())
	}
	if p.Control != nil {
		st.ControlPlane = new(p.Control.Status())
	}
	return st
}
