package codec

import (
	"fmt"
	"strings"
	"testing"
)

// The cases of W3C's test suite for Trace Context, as far as a header by itself decides them.
func TestTraceContextCases(t *testing.T) {
	const trace, parent = "12345678901234567890123456789012", "1234567890123456"
	with := func(version, trace, parent, flags string) string {
		return strings.Join([]string{version, trace, parent, flags}, "-")
	}
	good := with("00", trace, parent, "01")
	for value, want := range map[string]bool{
		good: true, with("00", trace, parent, "00"): true, with("00", trace, parent, "ff"): true, "": false,
		// versions
		good + ".": false, good + "-": false, good + "-what": false, with("cc", trace, parent, "01"): true,
		with("cc", trace, parent, "01-what-the-future-will-be-like"): true, with("cc", trace, parent, "01.what-the-future"): false,
		with("ff", trace, parent, "01"): false, with(".0", trace, parent, "01"): false, with("0.", trace, parent, "01"): false,
		with("000", trace, parent, "01"): false, with("0", trace, parent, "01"): false,
		// traces
		with("00", strings.Repeat("0", 32), parent, "01"): false, with("00", "."+trace[1:], parent, "01"): false,
		with("00", trace[:31]+".", parent, "01"): false, with("00", trace+"3", parent, "01"): false, with("00", trace[:31], parent, "01"): false,
		with("00", strings.ToUpper("abcdef"+trace[6:]), parent, "01"): false,
		// parents
		with("00", trace, strings.Repeat("0", 16), "01"): false, with("00", trace, "."+parent[1:], "01"): false,
		with("00", trace, parent[:15]+".", "01"): false, with("00", trace, parent+"7", "01"): false, with("00", trace, parent[:15], "01"): false,
		// flags
		with("00", trace, parent, ".0"): false, with("00", trace, parent, "0."): false, with("00", trace, parent, "001"): false,
		with("00", trace, parent, "1"): false,
	} {
		if IsTraceParent(value) != want {
			t.Errorf("traceparent %q: %v", value, !want)
		}
	}
	members := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("bar%02d=%02d", i, i))
		}
		return strings.Join(list, ",")
	}
	of := strings.Repeat
	for value, want := range map[string]bool{
		"foo=1": true, "foo=1,bar=2": true, "foo=1 \t , \t bar=2,\t baz=3": true, "foo=1,,bar=2": true, "foo=1,": true, "": false, "foo": false,
		"foo=1,foo=1": false, "foo=1,foo=2": false, members(32): true, members(33): false,
		// keys
		"foo =1": false, "FOO=1": false, "foo.bar=1": false, "foo@=1,bar=2": false, "@foo=1": false, "foo@@bar=1": false, "foo@bar@baz=1": false,
		"foo-_*/bar=1": true, of("z", 256) + "=1": true, of("z", 257) + "=1": false, of("t", 241) + "@" + of("v", 14) + "=1": true,
		of("t", 242) + "@v=1": false, "t@" + of("v", 15) + "=1": false, "0tenant@v=1": true,
		// values
		"foo=bar=baz": false, "foo=,bar=3": false, "foo=a b": true, "foo=" + of("v", 256): true, "foo=" + of("v", 257): false,
		"foo=\u00e9": false, "foo=a\x00": false, "foo=!#$%&'()*+-./:;<>?@[]^_`{|}~": true,
	} {
		if isTraceState(value) != want {
			t.Errorf("tracestate %.60q: %v", value, !want)
		}
	}
}
