package codec

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// shown is s for a message: quoted, and not longer than a reader can take in.
func shown[T string | []byte](s T) string {
	const most = 48
	if len(s) > most {
		return fmt.Sprintf("%.*q… (%d bytes)", most, s, len(s))
	}
	return fmt.Sprintf("%q", s)
}

// CheckTopic checks the name of a topic to publish to. Sidecars alone write dead letters.
func CheckTopic(name string) *wire.Error {
	if name == "" {
		return wire.Errorf(wire.BadRequest, "topic is missing")
	}
	if name[0] == '_' {
		return wire.Errorf(wire.BadRequest, "topic %s starts with _, which is reserved: publishing there is not allowed", shown(name))
	}
	if strings.HasSuffix(name, wire.DeadLetterSuffix) {
		return wire.Errorf(wire.BadRequest, "topic %s ends in %s: the sidecar writes dead letters itself; publish to another topic",
			shown(name), wire.DeadLetterSuffix)
	}
	return checkTopicName(name, name)
}

// CheckReadTopic checks the name of a topic to read from. Reserved topics may be read, and so may
// dead-letter topics, whose names can pass MaxTopicBytes by their ".dlq" suffixes.
func CheckReadTopic(name string) *wire.Error {
	if name == "" {
		return wire.Errorf(wire.BadRequest, "topic is missing")
	}
	base := name
	for len(base) > wire.MaxTopicBytes && len(name) <= wire.MaxReadTopicBytes && strings.HasSuffix(base, ".dlq") {
		base = strings.TrimSuffix(base, ".dlq")
	}
	return checkTopicName(name, base)
}

// checkTopicName checks the characters of name, and the length of base, which is the part of it
// that counts.
func checkTopicName(name, base string) *wire.Error {
	if len(base) > wire.MaxTopicBytes {
		return wire.Errorf(wire.BadRequest, "topic is %d bytes long; at most %d are allowed", len(name), wire.MaxTopicBytes)
	}
	if !OnlyTopicBytes(name) {
		return wire.Errorf(wire.BadRequest, "topic %s holds a character that is not allowed; allowed are A-Z a-z 0-9 . _ -", shown(name))
	}
	return checkDots("topic", name, topicNames)
}

// OnlyTopicBytes reports whether all bytes of a text are allowed in the name of a topic.
func OnlyTopicBytes(text string) bool {
	for i := range len(text) {
		if !topicByte[text[i]] {
			return false
		}
	}
	return true
}

var topicByte = func() (set [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-" {
		set[c] = true
	}
	return set
}()

// CheckGroup checks the name of a consumer group: 1 to 255 bytes of visible characters other than
// the slash, which would divide a URL's path.
func CheckGroup(name string) *wire.Error {
	switch {
	case name == "":
		return wire.Errorf(wire.BadRequest, "group is missing")
	case len(name) > wire.MaxGroupBytes:
		return wire.Errorf(wire.BadRequest, "group is %d bytes long; at most %d are allowed", len(name), wire.MaxGroupBytes)
	case !visible(name) || strings.Contains(name, "/"):
		return wire.Errorf(wire.BadRequest,
			"group %s holds a character that is not allowed; allowed are visible characters other than / and spaces", shown(name))
	}
	return checkDots("group", name, "visible characters")
}

var topicNames = fmt.Sprintf("1 to %d of A-Z a-z 0-9 . _ -", wire.MaxTopicBytes)

// checkDots refuses the names that no path can have.
func checkDots(field, name, allowed string) *wire.Error {
	if name == "." || name == ".." {
		return wire.Errorf(wire.BadRequest, "%s %s has a special meaning in URL paths and cannot be reached there; "+
			"allowed are all other names of %s", field, shown(name), allowed)
	}
	return nil
}

// CheckID checks an event's id: 1 to 128 visible characters, where a character is a Unicode code
// point, and visible is what Unicode calls graphic, other than spaces.
func CheckID(id string) *wire.Error { return checkID("id", id) }

func checkID(field, id string) *wire.Error {
	switch {
	case id == "":
		return wire.Errorf(wire.BadRequest, "%s is empty; 1 to %d visible characters are allowed", field, wire.MaxIDChars)
	case len(id) > wire.MaxIDChars && utf8.RuneCountInString(id) > wire.MaxIDChars:
		return wire.Errorf(wire.BadRequest, "%s is %d characters long; at most %d are allowed", field, utf8.RuneCountInString(id),
			wire.MaxIDChars)
	case !visible(id):
		return wire.Errorf(wire.BadRequest, "%s %s holds a character that is not allowed; allowed are visible characters without spaces",
			field, shown(id))
	}
	return checkDots(field, id, "visible characters")
}

// visible reports whether s is valid UTF-8 of visible characters alone.
func visible(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7F {
			return visibleRunes(s[i:])
		}
	}
	return true
}

func visibleRunes(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsGraphic(r) || unicode.IsSpace(r) {
			return false
		}
	}
	return true
}

// CheckKey checks an event's key; an empty one is no key.
func CheckKey(key string, lim wire.Limits) *wire.Error {
	if len(key) > lim.KeyBytes {
		return wire.Errorf(wire.BadRequest, "key is %d bytes long; at most %d are allowed (--limits key)", len(key), lim.KeyBytes)
	}
	if !utf8.ValidString(key) {
		return wire.Errorf(wire.BadRequest, "key is not valid UTF-8")
	}
	return nil
}

// CheckHeaders checks the publisher's own headers of one event.
func CheckHeaders(h wire.Headers, lim wire.Limits) *wire.Error {
	count, size := len(h), h.Size()
	for i := range h {
		if isTraceHeader(h[i].Name) { // which have bounds of their own
			count, size = count-1, size-h[i:i+1].Size()
		}
	}
	if count > lim.HeaderCount {
		return wire.Errorf(wire.PayloadTooLarge, "%d headers; at most %d are allowed (--limits headers)", count, lim.HeaderCount)
	}
	if size > lim.HeaderBytes {
		return wire.Errorf(wire.PayloadTooLarge, "headers take %d bytes; at most %d are allowed (--limits header-bytes)", size, lim.HeaderBytes)
	}
	for i, x := range h {
		if x.Name == "" {
			return wire.Errorf(wire.BadRequest, "headers holds an empty name")
		}
		if !utf8.ValidString(x.Name) || !utf8.ValidString(x.Value) {
			return wire.Errorf(wire.BadRequest, "header %s is not valid UTF-8", shown(x.Name))
		}
		if _, twice := h[:i].Get(x.Name); twice {
			return wire.Errorf(wire.BadRequest, "header %s is given twice", shown(x.Name))
		}
	}
	return nil
}

// CheckTS checks a time in milliseconds since the epoch.
func CheckTS(ts int64) *wire.Error {
	if ts < 0 || ts > wire.MaxTS {
		return wire.Errorf(wire.BadRequest, "ts is %d; a whole number of milliseconds from 0 to %d is allowed", ts, int64(wire.MaxTS))
	}
	return nil
}

func payloadTooLarge(size int, lim wire.Limits) *wire.Error {
	return wire.Errorf(wire.PayloadTooLarge, "payload is %d bytes long; at most %d are allowed (--limits payload)", size, lim.PayloadBytes)
}

// CheckPayloadBytes checks the size of a payload that is kept as bytes.
func CheckPayloadBytes(b []byte, lim wire.Limits) *wire.Error {
	if len(b) > lim.PayloadBytes {
		return payloadTooLarge(len(b), lim)
	}
	return nil
}

// CompactPayload validates a JSON payload and returns a compact copy of it: bad_json when it is not
// JSON, bad_request when it is nested too deep, payload_too_large when the compact form is over the
// limit.
func CompactPayload(b []byte, lim wire.Limits) ([]byte, *wire.Error) {
	v, err := scanWhole(b)
	if err != nil {
		return nil, wire.Errorf(wire.BadJSON, "payload is not JSON: %v", err)
	}
	return v.payload(lim)
}

// payload returns a compact copy of the value as an event's payload.
func (v *value) payload(lim wire.Limits) ([]byte, *wire.Error) {
	if int(v.depth) > lim.JSONDepth {
		return nil, wire.Errorf(wire.BadRequest, "payload is %v (--limits json-depth)", &DepthError{Depth: int(v.depth), Max: lim.JSONDepth})
	}
	if !v.spaced && len(v.raw) > lim.PayloadBytes {
		return nil, payloadTooLarge(len(v.raw), lim)
	}
	compact := v.appendCompact(make([]byte, 0, min(len(v.raw), lim.PayloadBytes)))
	if len(compact) > lim.PayloadBytes {
		return nil, payloadTooLarge(len(compact), lim)
	}
	if cap(compact) > 2*len(compact)+64 {
		compact = append(make([]byte, 0, len(compact)), compact...) // it may stay in caches: keep no slack
	}
	return compact, nil
}
