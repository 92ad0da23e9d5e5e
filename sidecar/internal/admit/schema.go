package admit

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// schemasKept is how many schemas stay compiled.
const schemasKept = 1000

func refusePaused(policies *policy.Snapshot, items []wire.PublishItem) {
	var topic string
	var e *policy.Effective
	for i := range items {
		it := &items[i]
		if it.Err != nil {
			continue
		}
		if it.Event.Topic != topic { // usually the same schema as before
			topic = it.Event.Topic
			e = policies.Topic(topic)
		}
		if e.Paused {
			it.Err = wire.Errorf(wire.TopicPaused, "topic %q is paused by its policy (paused: true)", topic)
		}
	}
}

// holdToSchemas refuses the items that their topics' schemas do not allow, and gives their tokens
// back. The other items get a header with the version of the schema, in place of the publisher's.
func (p *Publisher) holdToSchemas(t *reservation, items []wire.PublishItem, now time.Time) {
	for i := range items {
		it := &items[i]
		if it.Err != nil {
			continue
		}
		d := t.topic(it.Event.Topic)
		if d.policy.Schema.JSONSchema == "" {
			it.Event.Headers = withoutVersion(it.Event.Headers)
			continue
		}
		if it.Err = p.holdToSchema(d.policy.Schema.JSONSchema, &it.Event); it.Err != nil {
			d.violations++
			t.refund(i, d.name, len(it.Event.Payload), now)
			continue
		}
		it.Event.Headers = it.Event.Headers.With(wire.HeaderSchemaVersion, strconv.FormatInt(d.policy.Schema.Version, 10))
	}
}

// withoutVersion returns headers without the version of a schema. It does not change the given
// ones.
func withoutVersion(h wire.Headers) wire.Headers {
	if _, given := h.Get(wire.HeaderSchemaVersion); !given {
		return h
	}
	return slices.DeleteFunc(slices.Clone(h), func(x wire.Header) bool { return x.Name == wire.HeaderSchemaVersion })
}

func (p *Publisher) holdToSchema(text string, ev *wire.Event) *wire.Error {
	s, err := p.schemas.Get(text)
	if err != nil { // policies with such a schema are refused, but this one was not
		return p.refusal(ev.Topic, fmt.Errorf("the schema of the topic's policy: it %w", err))
	}
	if ev.Binary {
		return wire.Errorf(wire.SchemaViolation, "the payload is not JSON, and topic %q has a schema, which only JSON can follow", ev.Topic)
	}
	v := s.Check(ev.Payload)
	if v == nil {
		return nil
	}
	where := "the payload"
	if v.Pointer != "" {
		where = fmt.Sprintf("the payload at %q", v.Pointer)
	}
	e := wire.Errorf(wire.SchemaViolation, "%s %s, says the schema of topic %q", where, v.Msg, ev.Topic)
	e.Pointer = v.Pointer
	return e
}
