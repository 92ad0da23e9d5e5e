package httpapi

import (
	"errors"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// taken are a parameter of each kind.
var taken = []Param{
	Text("a", ""), Text("key", ""), Whole("n", "", 0, 10).Or("5"), OneOf("c", "", "asc", "desc").Or("asc"), Text("list", "").List(),
	Text("short", "", func(value string) *wire.Error {
		if len(value) > 3 {
			return wire.Errorf(wire.BadRequest, "it is long")
		}
		return nil
	}),
	WholeOr("now", "to", "", 0, 10), {Name: "free.*"},
}

func TestParams(t *testing.T) {
	p, err := parseParams("&a=orders&key=a%2Bb+c%26;d&&n=007&list=x&list=y&short=abc&to=now&free.x=&free.y=1&free.y=2", taken)
	if err != nil {
		t.Fatal(err)
	}
	if p.Text("a") != "orders" || p.Text("key") != "a+b c&;d" || p.Whole("n") != 7 || p.Text("c") != "asc" || p.Text("to") != "now" {
		t.Errorf("%+v", p.values)
	}
	if !p.Has("a") || p.Has("c") || !slices.Equal(p.List("list"), []string{"x", "y"}) || len(p.With("free.*")["free.y"]) != 2 {
		t.Errorf("%+v", p.values)
	}
	if p, err = parseParams("", taken); err != nil || p.Whole("n") != 5 || p.Text("a") != "" || p.Has("n") {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestParamsRefuse(t *testing.T) {
	for _, tc := range []struct{ query, names string }{
		{"a=1&n=2&a=1", "a"},
		{"A=1", "A"},
		{"nn=1", "nn"},
		{"unknown=", "unknown"},
		{"short=abcd", "short"},
		{"to=then", "to"},
		{"to=11", "to"},
		{"list=", "list"},
		{"free=1", "free"},
		{"a=%zz", "a"},
		{"a=%e", "a"},
		{"%zz=1", "%zz"},
		{"a=%ff", "a"},
		{"a=", "a"},
		{"a", "a"},
		{"n=", "n"},
		{"n=1.5", "n"},
		{"n=1e2", "n"},
		{"n=-1", "n"},
		{"n=11", "n"},
		{"n=%2B5", "n"},
		{"n=0x5", "n"},
		{"n=99999999999999999999", "n"},
		{"n=+5", "n"},
		{"c=ASC", "c"},
		{"c=", "c"},
	} {
		_, err := parseParams(tc.query, taken)
		var e *wire.Error
		if !errors.As(err, &e) || e.Code != wire.BadRequest || !strings.Contains(e.Msg, `"`+tc.names+`"`) {
			t.Errorf("%q: %v; want bad_request naming %q", tc.query, err, tc.names)
		}
	}
}

// An unknown parameter names the one that was meant, or all that there are.
func TestUnknownParams(t *testing.T) {
	for query, hint := range map[string]string{
		"kye=1": `did you mean "key"?`, "entirely=1": "known are a, key, n, c, list, short, to, free.*",
	} {
		if _, err := parseParams(query, taken); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v", query, err)
		}
	}
	if _, err := parseParams("a=1", nil); err == nil || !strings.HasSuffix(err.Error(), "it is not known here") {
		t.Error(err)
	}
}

func FuzzParseParams(f *testing.F) {
	for _, s := range []string{"", "a=1", "a=1&a=2", "n=5&c=desc", "a=%e2%82%ac", "a=%ff", "%=", "=&=", ";", "a=b=c", "n=-0", "a+b=c+d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		p, err := parseParams(query, taken)
		if err != nil {
			var e *wire.Error
			if !errors.As(err, &e) || e.Code != wire.BadRequest || !utf8.ValidString(e.Msg) {
				t.Fatalf("%q: %v", query, err)
			}
			return
		}
		// An accepted query means the same as in the standard library, which also refuses
		// semicolons.
		want, err := url.ParseQuery(strings.ReplaceAll(query, ";", "%3B"))
		if err != nil || len(want) != len(p.values) || len(want) > 0 && !reflect.DeepEqual(map[string][]string(want), p.values) {
			t.Fatalf("%q: %v, want %v, %v", query, p.values, want, err)
		}
		if n := p.Whole("n"); n < 0 || n > 10 {
			t.Fatalf("%q: n is %d", query, n)
		}
	})
}
