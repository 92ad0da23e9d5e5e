package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// nasty are JSON texts that careless readers change or choke on.
var nasty = []string{
	`12345678901234567890`, `0.1`, `1e400`, `-0`, `-0.0e-999999999999999999999`, `"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`,
	`{"a":1,"a":2}`, `{"b":1,"a":{"d":[ ],"c":{ }}}`, "\"\u2028\u2029\"", `"\u0041\/\b\f\n\r\t\"\\"`, ` [ 1 , 2 , { "x" : null } ] `,
	strings.Repeat("[", 600) + strings.Repeat("]", 600), strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600),
	`"` + strings.Repeat("long ", 1000) + `"`, `true`, `false`, `null`, `""`, `{}`, `[]`, "\"é\"", "\t\"\u007f\"\r\n",
}

// broken are texts that are not JSON, and where the fault is.
var broken = []struct {
	text   string
	offset int
}{
	{``, 0}, {` `, 1}, {`{`, 1}, {`[1,]`, 3}, {`{"a":1,}`, 7}, {`{a:1}`, 1}, {`{"a" 1}`, 5}, {`[1 2]`, 3}, {`{"a":1]`, 6},
	{`01`, 1}, {`-`, 1}, {`1.`, 2}, {`1e`, 2}, {`1e+`, 3}, {`+1`, 0}, {`.5`, 0}, {`NaN`, 0}, {`tru`, 0}, {`nul`, 0},
	{`"abc`, 4}, {`"\x"`, 2}, {`"\u12g4"`, 5}, {"\"\n\"", 1}, {"\"\xff\"", 1}, {"\"\xed\xa0\x80\"", 1}, {`1 2`, 2}, {`[1}`, 2}, {`'a'`, 0},
	{"\ufeff1", 0},
}

func TestAppendCompactKeepsTheValue(t *testing.T) {
	for _, text := range nasty {
		got, err := AppendCompact([]byte("before:"), []byte(text), 600)
		if err != nil {
			t.Fatalf("%.60s: %v", text, err)
		}
		var want bytes.Buffer
		if err := json.Compact(&want, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if string(got) != "before:"+want.String() {
			t.Errorf("%.60s became %.60s", text, got)
		}
	}
}

func TestAppendCompactSaysWhereTheFaultIs(t *testing.T) {
	for _, c := range broken {
		got, err := AppendCompact([]byte("kept"), []byte(c.text), 10)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Offset != c.offset || string(got) != "kept" {
			t.Errorf("%q: %v, want offset %d (dst %q)", c.text, err, c.offset, got)
		}
	}
}

func TestAppendCompactLimitsNesting(t *testing.T) {
	for depth, ok := range map[int]bool{511: true, 512: true, 513: false, 100_000: false} {
		text := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		_, err := AppendCompact(nil, []byte(text), 512)
		var deep *DepthError
		if ok && err != nil || !ok && (!errors.As(err, &deep) || deep.Depth != depth) {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
}

func TestAppendStringIsReadBackTheSame(t *testing.T) {
	for _, s := range []string{"", "plain", "a long one that is plain from its start to its end", "quote\" back\\ <&>",
		"\x00\x1f\n\r\t\b\u007f\u2028é😀"} {
		text := AppendString(nil, s)
		var back string
		if err := json.Unmarshal(text, &back); err != nil || back != s {
			t.Errorf("%q became %s, read as %q (%v)", s, text, back, err)
		}
	}
	if got := string(AppendString(nil, "a\xffb")); got != "\"a\ufffdb\"" {
		t.Errorf("invalid UTF-8 became %q", got)
	}
}

func FuzzCompact(f *testing.F) {
	for _, text := range nasty {
		f.Add([]byte(text))
	}
	for _, c := range broken {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		// encoding/json lets invalid UTF-8 pass, and refuses what is nested more than 10,000 deep.
		valid := json.Valid(text) && utf8.Valid(text)
		got, err := AppendCompact(nil, text, 10_000)
		if valid != (err == nil) {
			t.Fatalf("%q: %v, encoding/json says %v", text, err, valid)
		}
		if err != nil {
			return
		}
		if again, err := AppendCompact(nil, got, 10_000); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q compacts to %q and that to %q (%v)", text, got, again, err)
		}
		if want, have := decodeNumbers(t, text), decodeNumbers(t, got); !reflect.DeepEqual(want, have) {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

func decodeNumbers(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
