package codec

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// What copied events carry, and trace headers that are none, are left out; they never refuse an
// event. Other names of the sidecar's own are refused.
func TestPublisherHeaders(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	lim := wire.DefaultLimits()
	for _, c := range []struct {
		name, value string
		kept        bool
		code        wire.Code
	}{
		{"a", "b", true, ""},
		{"sluice-schema-version", "3", false, ""},
		{"sluice-redriven", "1", false, ""},
		{"sluice-capture-op", "insert", false, ""},
		{"sluice-dlq-reason", "x", false, wire.BadRequest},
		{"sluice-mine", "x", false, wire.BadRequest},
		{"traceparent", parent, true, ""},
		{"traceparent", "01" + parent[2:] + "-more", true, ""},
		{"traceparent", parent + "-more", false, ""},
		{"traceparent", strings.ToUpper(parent), false, ""},
		{"traceparent", "00-00000000000000000000000000000000-b7ad6b7169203331-01", false, ""},
		{"traceparent", "ff" + parent[2:], false, ""},
		{"traceparent", "\xff", false, ""},
		{"traceparent", "", false, ""},
		{"traceparent", "01" + parent[2:] + "-\r\nx: y", false, ""}, // it would end a line of HTTP
		{"tracestate", "x=y\n", false, ""},
		{"baggage", "b=c\x00", false, ""},
		{"tracestate", "rojo=1,congo=t61rcWkgMzE", true, ""},
		{"tracestate", "rojo", false, ""},
		{"tracestate", "a=" + strings.Repeat("b", 8192), false, ""},
		{"tracestate", strings.Repeat("a=b,", 33), false, ""},
		{"baggage", "k=" + strings.Repeat("v", 8190), true, ""},
		{"baggage", "k=" + strings.Repeat("v", 8191), false, ""},
		{"baggage", "k=\xff", false, ""},
	} {
		given := wire.Headers{{Name: c.name, Value: c.value}, {Name: "big", Value: strings.Repeat("x", lim.HeaderBytes-len("big"))}}
		if c.name == "a" {
			given = given[:1]
		}
		got, bad := PublisherHeaders(given, lim)
		_, kept := got.Get(c.name)
		if kept != c.kept || (bad != nil) != (c.code != "") || bad != nil && bad.Code != c.code {
			t.Errorf("%s: %.60q: kept %t, %v", c.name, c.value, kept, bad)
		}
		if _, still := given.Get(c.name); !still {
			t.Errorf("%s was taken out of the caller's headers", c.name)
		}
	}
}
