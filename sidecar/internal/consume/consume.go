// Package consume hands out events over HTTP: to requests that pull, to streams, and the latest
// event of each key.
//
// A puller is a member of a group that serves all requests that pull from the group with equal
// opts. It takes as many events from the group as the waiting requests want, and serves the
// requests in the order of their arrival. Its events stay in flight after the requests are
// answered: a lease names one delivery, so any request can settle it. A pull ends when its answer
// is full, or when the group has no more events for it now.
//
//	pull ──▶ tokens of its connection ──▶ puller ──▶ group
//	ack, nack, modack: lease ────────────────────────▶ group
//
// A stream (server-sent events) is a subscription whose events count as acked once they are
// written. The group puts events into the stream's send buffer.
package consume

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/receive"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// Config is what Consumers need; every field but Memory is required.
type Config struct {
	Groups *group.Manager
	Log    eventlog.Reader
	Lookup deadletter.Lookup // finds the events that a stream sends again
	Bodies *receive.Bodies
	Memory *budget.Budget // bounds the data for all clients until it is written; nil: no bound
	Limits wire.Limits
	Bounds session.Bounds
	NodeID string
	Logger *slog.Logger
}

// Consumers are the clients that get events over HTTP.
type Consumers struct {
	cfg     Config
	leases  leaser
	pulls   pullers
	streams streams
	latest  *semaphore.Weighted // answers with latest events under way
}

// New makes Consumers.
func New(cfg Config) *Consumers {
	c := &Consumers{cfg: cfg, leases: newLeaser(cfg.NodeID), latest: semaphore.NewWeighted(maxLatest)}
	c.pulls = pullers{cfg: &c.cfg, all: make(map[pullerKey]*puller)}
	c.streams = streams{live: make(map[*stream]struct{})}
	return c
}

// Routes returns the routes.
func (c *Consumers) Routes() []session.Route {
	return []session.Route{
		{Pattern: "POST /v1/topics/{topic}/groups/{group}/pull", Handler: c.pullEvents},
		{Pattern: "POST /v1/topics/{topic}/groups/{group}/ack", Handler: c.settleLeases(wire.OpAck)},
		{Pattern: "POST /v1/topics/{topic}/groups/{group}/nack", Handler: c.settleLeases(wire.OpNack)},
		{Pattern: "POST /v1/topics/{topic}/groups/{group}/modack", Handler: c.settleLeases(wire.OpModAck)},
		{Pattern: "GET /v1/topics/{topic}/stream", Handler: c.streamEvents},
		{Pattern: "GET /v1/topics/{topic}/latest", Handler: c.readLatest},
	}
}

// Subscriptions is how many there are, of streams and of pullers.
func (c *Consumers) Subscriptions() int { return c.streams.count() + c.pulls.count() }

// LeavePulls ends the unused pullers of a topic, or of one of its groups, so that they do not keep
// a group from being deleted.
func (c *Consumers) LeavePulls(topic, group string) { c.pulls.leave(topic, group) }

// RightsChanged ends the streams whose callers may not have them any more.
func (c *Consumers) RightsChanged() { c.streams.rightsChanged() }

// EndPulls refuses pulls from now on, answers the waiting ones, and gives back the events in flight.
func (c *Consumers) EndPulls() { c.pulls.end(refusal.Stopping()) }

// EndStreams ends all streams. A stream that is writing has until ctx ends to finish.
func (c *Consumers) EndStreams(ctx context.Context) { c.streams.end(ctx) }

// mayJoin reports whether the caller may subscribe to the topic in the path, with the group in the
// path.
func mayJoin(caller *session.Session, r *http.Request) error {
	return caller.May(access.Subscribe, r.PathValue("topic"), r.PathValue("group"))
}

// write writes a part of an answer, which the client has some time to read.
func (c *Consumers) write(w http.ResponseWriter, conn *http.ResponseController, text []byte) error {
	c.cfg.Memory.Take(len(text))
	defer c.cfg.Memory.Give(len(text))
	_ = conn.SetWriteDeadline(time.Now().Add(c.cfg.Bounds.SlowClientTimeout))
	_, err := w.Write(text)
	return err
}
