package consume

import (
	"net/http"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// Routes returns the routes.
func (c *Consumers) Routes() []session.Route {
	return []session.Route{
		{Handler: c.pullEvents, Route: httpapi.Route{
			Pattern: "POST /v1/topics/{topic}/groups/{group}/pull", Summary: "take events from a group, and wait for them",
			Body: httpapi.JSONOf[pullBody](), Optional: true,
			Answers: []httpapi.Answer{{Status: http.StatusOK, Doc: "the events", Content: httpapi.JSONOf[pulledBody]()}},
			Errors:  []wire.Code{wire.OutOfRange},
		}},
		c.settleRoute("ack", "settle pulled events", wire.OpAck, httpapi.JSONOf[ackBody]()),
		c.settleRoute("nack", "give pulled events back", wire.OpNack, httpapi.JSONOf[nackBody]()),
		c.settleRoute("modack", "set the deadline of pulled events", wire.OpModAck, httpapi.JSONOf[modackBody]()),
		{Handler: c.streamEvents, Route: httpapi.Route{
			Pattern: "GET /v1/topics/{topic}/stream", Summary: "events as server-sent events, as they come", Role: string(access.RoleReader),
			Query: []httpapi.Param{
				httpapi.Text("group", "the group whose events these are; without one, all events", codec.CheckGroup),
				httpapi.OneOf("from", "where to start, while the group has no cursor",
					wire.FromLatest, wire.FromEarliest, wire.FromTS, wire.FromAfterID, wire.FromPositions).Or(wire.FromLatest),
				httpapi.Whole("ts", "of from=ts: milliseconds since the epoch", 0, wire.MaxTS),
				httpapi.Text("afterId", "of from=afterId: an event's id", codec.CheckID),
				httpapi.Text("positions", "of from=positions: a JSON object of seqs by partition"),
				httpapi.OneOf("format", "of the events", wire.FormatEvent, wire.FormatCloudEvents).Or(wire.FormatEvent),
				httpapi.Text("lastEventId", "stands for the header Last-Event-Id", codec.CheckID),
			},
			Headers: []httpapi.Param{httpapi.Text("Last-Event-Id", "resumes after the event with this id")},
			Answers: []httpapi.Answer{{
				Status: http.StatusOK, Doc: "the events", Content: httpapi.Content{"text/event-stream": {"type": "string"}},
			}},
			Errors: []wire.Code{wire.OutOfRange},
		}},
		{Handler: c.readLatest, Route: httpapi.Route{
			Pattern: "GET /v1/topics/{topic}/latest", Summary: "the latest event of each key, and the positions to go on from",
			Role: string(access.RoleReader),
			Query: []httpapi.Param{
				httpapi.Text("key", "only this key, and others that are named", c.checkKey).List(),
				httpapi.Text("prefix", "only keys that begin so", c.checkKey),
			},
			Answers: []httpapi.Answer{{Status: http.StatusOK, Doc: "the events, then the positions", Content: httpapi.Lines(httpapi.Schema{
				"anyOf": []httpapi.Schema{httpapi.Ref("Event"), httpapi.SchemaOf[positionsLine](), httpapi.Ref("Error")},
			})}},
		}},
	}
}

func (c *Consumers) checkKey(key string) *wire.Error { return codec.CheckKey(key, c.cfg.Limits) }

func (c *Consumers) settleRoute(verb, summary, op string, body httpapi.Content) session.Route {
	return session.Route{Handler: c.settleLeases(op), Route: httpapi.Route{
		Pattern: "POST /v1/topics/{topic}/groups/{group}/" + verb, Summary: summary, Body: body,
		Answers: []httpapi.Answer{{Status: http.StatusOK, Doc: "a result for each lease, in order", Content: httpapi.ResultsOf[settled]()}},
	}}
}

// The bodies, as package codec reads and writes them.
type (
	pullBody struct {
		Max    int      `json:"max,omitempty"`
		WaitMS int64    `json:"wait_ms,omitempty"`
		Opts   pullOpts `json:"opts,omitzero"`
	}
	pullOpts struct {
		From         string            `json:"from,omitempty"`
		TS           int64             `json:"ts,omitempty"`
		AfterID      string            `json:"afterId,omitempty"`
		Positions    map[string]uint64 `json:"positions,omitempty"`
		MaxInflight  int               `json:"maxInflight,omitempty"`
		AckTimeoutMS int64             `json:"ackTimeoutMs,omitempty"`
		MaxAttempts  int               `json:"maxAttempts,omitempty"`
		Ordered      bool              `json:"ordered,omitempty"`
		ExactlyOnce  bool              `json:"exactlyOnce,omitempty"`
		DedupeTTLMS  int64             `json:"dedupeTtlMs,omitempty"`
		AutoAck      bool              `json:"autoAck,omitempty"`
		Format       string            `json:"format,omitempty"`
		Filter       pullFilter        `json:"filter,omitzero"`
	}
	pullFilter struct {
		Key    string            `json:"key,omitempty"`
		Tag    string            `json:"tag,omitempty"`
		Header map[string]string `json:"header,omitempty"`
	}
	pulledBody struct {
		Events []struct {
			Event struct{} `json:"event" schema:"Formatted"`
			Ctx   struct {
				Attempt       int    `json:"attempt"`
				AckDeadlineMS int64  `json:"ack_deadline_ms"`
				Lease         string `json:"lease"`
			} `json:"ctx"`
		} `json:"events"`
	}
	ackBody struct {
		Leases []string `json:"leases"`
	}
	nackBody struct {
		ackBody
		Reason     string `json:"reason,omitempty"`
		DelayMS    int64  `json:"delay_ms,omitempty"`
		DeadLetter bool   `json:"dead_letter,omitempty"`
		Hold       bool   `json:"hold,omitempty"`
	}
	modackBody struct {
		ackBody
		ExtendMS int64 `json:"extend_ms"`
	}
	settled struct {
		OK bool `json:"ok"`
	}
	positionsLine struct {
		Positions map[string]uint64 `json:"positions"`
	}
)
