package eventlog

// Tombstone reports whether the event says that its key has no value any more, by a payload of JSON
// null.
func (r *Record) Tombstone() bool {
	return r.Key != "" && !r.Binary && string(r.Payload) == "null"
}
