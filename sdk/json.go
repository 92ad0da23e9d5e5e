package sluice

import (
	"context"
	"encoding/json"
	"fmt"
)

// Decode reads an event's JSON payload.
func Decode[T any](e *Event) (v T, err error) {
	if e.Binary {
		return v, fmt.Errorf("sluice: event %q has no JSON payload: it is bytes of another content type", e.ID)
	}
	if err := json.Unmarshal(e.Payload, &v); err != nil {
		return v, fmt.Errorf("sluice: the payload of event %q: %w", e.ID, err)
	}
	return v, nil
}

// JSON makes a handler of a function that takes the event's payload decoded. An event whose payload
// cannot be decoded goes to the dead letters at once: no other attempt would change it.
func JSON[T any](handle func(ctx context.Context, m *Message, v T) error) Handler {
	return func(ctx context.Context, m *Message) error {
		v, err := Decode[T](&m.Event)
		if err != nil {
			return DeadLetter(err)
		}
		return handle(ctx, m, v)
	}
}
