// Package adapter has what sdk/adapters have in common: events out of bytes and metadata, and back.
package adapter

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Event is the event of a message. Its payload comes back byte for byte: it travels as JSON where it is compact JSON, else as bytes.
func Event(topic string, payload []byte, metadata map[string]string) wire.Event {
	var compact bytes.Buffer
	isJSON := json.Compact(&compact, payload) == nil && bytes.Equal(compact.Bytes(), payload)
	event := wire.Event{Topic: topic, Payload: payload, Binary: !isJSON}
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		event.Headers = append(event.Headers, wire.Header{Name: name, Value: metadata[name]})
	}
	return event
}
