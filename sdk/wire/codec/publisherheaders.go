package codec

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// maxTraceBytes bounds the values of tracestate and baggage.
const maxTraceBytes = 8192

// notCounted is about how many headers an event may have that do not count as the publisher's own:
// those of tracing, and those that are left out.
const notCounted = 8

// PublisherHeaders checks the headers that a publisher gives an event, and returns those to keep. It
// leaves out what copied events carry of the sidecar's own headers, and trace headers that are not
// valid: these never refuse an event. It does not change h.
func PublisherHeaders(h wire.Headers, lim wire.Limits) (wire.Headers, *wire.Error) {
	if slices.ContainsFunc(h, isLeftOut) {
		h = slices.DeleteFunc(slices.Clone(h), isLeftOut)
	}
	for _, x := range h {
		if strings.HasPrefix(x.Name, ownHeader) {
			return nil, wire.Errorf(wire.BadRequest, "header %s: names that begin with %s are the sidecar's own; use another name",
				shown(x.Name), ownHeader)
		}
	}
	return h, CheckHeaders(h, lim)
}

func isLeftOut(x wire.Header) bool {
	switch x.Name {
	case wire.HeaderSchemaVersion, wire.HeaderRedriven:
		return true
	case headerParent:
		return !IsTraceParent(x.Value)
	case headerState:
		return !isTraceState(x.Value)
	case headerBaggage:
		return len(x.Value) > maxTraceBytes || !utf8.ValidString(x.Value) || strings.ContainsAny(x.Value, "\r\n\x00")
	}
	return strings.HasPrefix(x.Name, wire.HeaderCaptureAll)
}

// The headers of W3C Trace Context and Baggage.
const (
	headerParent  = "traceparent"
	headerState   = "tracestate"
	headerBaggage = "baggage"
)

func isTraceHeader(name string) bool {
	return name == headerParent || name == headerState || name == headerBaggage
}

// IsTraceParent reports whether s is a traceparent: version, trace, span and flags. In versions later
// than 00, more may follow the flags.
func IsTraceParent(s string) bool {
	const length = len("00-00000000000000000000000000000000-0000000000000000-00")
	if len(s) < length || len(s) > 2*length || s[:2] == "ff" || s[:2] == "00" && len(s) > length {
		return false
	}
	parts := strings.SplitN(s, "-", 5)
	if len(parts) < 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 {
		return false
	}
	isHex := func(part string) bool { return strings.Trim(part, "0123456789abcdef") == "" }
	return !slices.ContainsFunc(parts[:4], func(part string) bool { return !isHex(part) }) && visible(s) &&
		strings.Trim(parts[1], "0") != "" && strings.Trim(parts[2], "0") != ""
}

// isTraceState reports whether s is a tracestate: up to 32 members KEY=VALUE, each key once. A member may be empty.
func isTraceState(s string) bool {
	if len(s) > maxTraceBytes {
		return false
	}
	seen := map[string]bool{}
	for member := range strings.SplitSeq(s, ",") {
		if member = strings.Trim(member, " \t"); member == "" {
			continue
		}
		key, _, _ := strings.Cut(member, "=")
		if seen[key] || len(seen) == maxTraceMembers || !traceMember.MatchString(member) {
			return false
		}
		seen[key] = true
	}
	return len(seen) > 0
}

const maxTraceMembers = 32

// traceMember is a member as W3C Trace Context writes it: a value is printable ASCII, and does not end in a space.
var traceMember = regexp.MustCompile(`^([a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})` +
	`=[ -+\--<>-~]{0,255}[!-+\--<>-~]$`)
