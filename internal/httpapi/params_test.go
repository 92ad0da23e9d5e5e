package httpapi

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestParseParams(t *testing.T) {
	p, err := ParseParams("&topic=orders&key=a%2Bb+c%26;d&&n=007&unknown=x&flag")
	if err != nil {
		t.Fatal(err)
	}
	if key, err := p.Text("key"); err != nil || key != "a+b c&;d" {
		t.Errorf("key %q, %v", key, err)
	}
	if n, err := p.Whole("n", 1, 0, 9); err != nil || n != 7 {
		t.Errorf("n %d, %v", n, err)
	}
	if n, err := p.Whole("absent", 42, 0, 9); err != nil || n != 42 {
		t.Errorf("default %d, %v", n, err)
	}
	if c, err := p.Choice("absent", "asc", "desc"); err != nil || c != "asc" {
		t.Errorf("choice %q, %v", c, err)
	}
	if s, err := p.Text("absent"); err != nil || s != "" || p.Has("absent") || !p.Has("flag") {
		t.Errorf("absent %q, %v", s, err)
	}
}

func TestParamsRefuse(t *testing.T) {
	for _, tc := range []struct{ query, names string }{
		{"a=1&b=2&a=1", "a"},
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
		err := readAll(tc.query)
		var e *wire.Error
		if !errors.As(err, &e) || e.Code != wire.BadRequest || !strings.Contains(e.Msg, `"`+tc.names+`"`) {
			t.Errorf("%q: %v; want bad_request naming %q", tc.query, err, tc.names)
		}
	}
}

// readAll reads one parameter of each kind.
func readAll(query string) error {
	p, err := ParseParams(query)
	if err != nil {
		return err
	}
	if _, err := p.Text("a"); err != nil {
		return err
	}
	if _, err := p.Whole("n", 5, 0, 10); err != nil {
		return err
	}
	_, err = p.Choice("c", "asc", "desc")
	return err
}

func FuzzParseParams(f *testing.F) {
	for _, s := range []string{"", "a=1", "a=1&a=2", "n=5&c=desc", "a=%e2%82%ac", "a=%ff", "%=", "=&=", ";", "a=b=c", "n=-0", "a+b=c+d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		p, err := ParseParams(query)
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
		if err != nil {
			t.Fatalf("%q taken, but: %v", query, err)
		}
		if len(p.values) != len(want) {
			t.Fatalf("%q: %v, want %v", query, p.values, want)
		}
		for name, value := range p.values {
			if len(want[name]) != 1 || want[name][0] != value {
				t.Fatalf("%q: %q is %q, want %q", query, name, value, want[name])
			}
		}
		if n, err := p.Whole("n", 5, 0, 10); err == nil && (n < 0 || n > 10) {
			t.Fatalf("%q: n is %d", query, n)
		}
	})
}
