package wire

import (
	"crypto/sha256"
	"encoding/hex"
)

// The event's headers that keep these attributes of a CloudEvent.
const (
	HeaderCloudEventID     = "ce-id" // where the event's id is CloudEventID
	HeaderCloudEventSource = "ce-source"
)

// CloudEventID is the event's id of a CloudEvent in a topic whose policy has dedupe.by source_id.
func CloudEventID(source, id string) string {
	const digits = 32
	sum := sha256.Sum256([]byte(source + "\n" + id))
	return "ce-" + hex.EncodeToString(sum[:])[:digits]
}
