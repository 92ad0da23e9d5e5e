package wire

import "slices"

// Event is one event as the contract's section 2 names it. The zero value of an optional field
// means that the field is absent; absent fields are left out of the JSON form.
//
// An Event that came out of a log is shared between readers: treat it and everything it refers to
// as read-only.
type Event struct {
	// ID is unique per topic: 1 to 128 visible characters.
	ID string
	// TS is milliseconds since the epoch.
	TS int64
	// Topic is 1 to 255 of A-Z a-z 0-9 . _ -.
	Topic string
	// Partition and Seq are given by the log; Seq starts at 1, and 0 means that the event is not in
	// the log (yet), in which case both are absent from the JSON form.
	Partition int
	Seq       uint64
	// Key orders events: those of one key are in one partition.
	Key string
	// Headers keep the publisher's order.
	Headers  Headers
	Tags     []string
	CausedBy []string
	SID      string
	// TTLMS is for how many milliseconds after its acceptance the event is delivered to groups; 0:
	// for as long as the topic keeps it.
	TTLMS int64
	// Payload is compact JSON text (no insignificant white space), or any bytes at all when Binary
	// is set: those travel as "payload_base64".
	Payload []byte
	Binary  bool
	// Spooled marks an event that waits in a sidecar's spool for its store.
	Spooled bool
}

// Header is one name and its value.
type Header struct{ Name, Value string }

// Headers is a short list of headers; each name occurs once.
type Headers []Header

// HeaderSchemaVersion is on an event whose payload a sidecar has validated: the version of the
// policy's schema. Sidecars set it, and drop a publisher's value.
const HeaderSchemaVersion = "sluice-schema-version"

// HeaderCaptureAll begins the headers that say which change of a collection an event is of.
const HeaderCaptureAll = "sluice-capture-"

// Get returns the value of the header called name, and whether there is one.
func (h Headers) Get(name string) (string, bool) {
	for i := range h {
		if h[i].Name == name {
			return h[i].Value, true
		}
	}
	return "", false
}

// With returns the headers with name set to value. The receiver's own entries are not changed, so
// it is safe on a shared event's headers.
func (h Headers) With(name, value string) Headers {
	out := append(make(Headers, 0, len(h)+1), h...)
	out = slices.DeleteFunc(out, func(x Header) bool { return x.Name == name })
	return append(out, Header{Name: name, Value: value})
}

// Size is the number of bytes that names and values take together.
func (h Headers) Size() int {
	n := 0
	for i := range h {
		n += len(h[i].Name) + len(h[i].Value)
	}
	return n
}

// Size is about how many bytes of memory the event's content takes. Bounds in bytes are counted
// with it.
func (e *Event) Size() int {
	const overhead = 200 // the struct, slice and string headers
	n := overhead + len(e.ID) + len(e.Topic) + len(e.Key) + len(e.SID) + len(e.Payload) + e.Headers.Size() + 32*len(e.Headers)
	for _, s := range e.Tags {
		n += 16 + len(s)
	}
	for _, s := range e.CausedBy {
		n += 16 + len(s)
	}
	return n
}
