package eventlog

// Tombstone reports whether the event says that there is nothing under its key
// any more: a payload of JSON null.
func (r *Record) Tombstone() bool {
	return r.Key != "" && !r.Binary && string(r.Payload) == "null"
}
