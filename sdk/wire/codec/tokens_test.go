package codec

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// spelled puts the tokens together again, names and strings as they came.
func spelled(text []byte) (out []byte, err error) {
	tokens := NewTokens(text)
	comma := false
	for {
		if err := tokens.Next(); err != nil || tokens.Kind == TokenEnd {
			return out, err
		}
		closes := tokens.Kind == '}' || tokens.Kind == ']'
		if comma && !closes {
			out = append(out, ',')
		}
		comma = true
		switch tokens.Kind {
		case TokenName:
			out = append(append(out, tokens.Raw()...), ':')
			comma = false
		case '{', '[':
			out = append(out, tokens.Kind)
			comma = false
		case '}', ']':
			out = append(out, tokens.Kind)
		case '"', TokenNumber:
			out = append(out, tokens.Raw()...)
		default:
			out = append(out, map[byte]string{'t': "true", 'f': "false", 'n': "null"}[tokens.Kind]...)
		}
	}
}

func TestTokensAreTheText(t *testing.T) {
	deep := strings.Repeat(`[{"a":`, 100) + "1" + strings.Repeat("}]", 100)
	for _, text := range []string{
		`1`, ` null `, `"x"`, `[]`, `{}`, `[[],{}]`, `{"a":{},"b":[],"c":[1,[2,{"d":-0.5e3}],true,false]}`,
		` { "a" : [ 1 , "\n" ] , "" : null } `, deep,
		``, ` `, `1 2`, `[1`, `[1,]`, `{,}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1}`, `{"a":1]`, `]`, `[1 2]`, `{"a":1 "b":2}`, `nul`, "\"\xff\"",
		`{1:2}`, `[,1]`,
	} {
		checkTokens(t, []byte(text))
	}
}

// checkTokens compares the tokens with what AppendCompact makes of the text.
func checkTokens(t *testing.T, text []byte) {
	want, wrong := AppendCompact(nil, text, math.MaxInt)
	got, err := spelled(text)
	if (err != nil) != (wrong != nil) {
		t.Fatalf("%.80q: error %v; AppendCompact says %v", text, err, wrong)
	}
	if err == nil {
		if !bytes.Equal(got, want) {
			t.Fatalf("%.80q: got %s; want %s", text, got, want)
		}
		return
	}
	var syntax *SyntaxError
	if !errors.As(err, &syntax) || syntax.Offset < 0 || syntax.Offset > len(text) {
		t.Fatalf("%.80q: error %#v", text, err)
	}
}

func FuzzTokens(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":null}],"c":"\ud800"}`, `[1,]`, `[[[]]]`, ` 1e5 `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkTokens(t, text) })
}

func TestTokensSayWhatTextsStandFor(t *testing.T) {
	for text, want := range map[string]string{`"plain"`: "plain", `"\u00e9\n\ud83d\ude00\u0000"`: "é\n😀\x00", `""`: ""} {
		tokens := NewTokens([]byte(text))
		if err := tokens.Next(); err != nil {
			t.Fatal(err)
		}
		if got, ok := tokens.AppendText([]byte("<")); !ok || string(got) != "<"+want {
			t.Errorf("%s: got %q, %v", text, got, ok)
		}
	}
	tokens := NewTokens([]byte(`"\ud800"`))
	_ = tokens.Next()
	if _, ok := tokens.AppendText(nil); ok {
		t.Error("a lone surrogate counts as text")
	}
}

func TestAppendDecimal(t *testing.T) {
	for _, same := range [][]string{
		{"0", "-0", "0.00", "0e7", "-0E-9"}, {"100", "1e2", "1E+2", "100.0", "0.1e3"}, {"-1.5", "-15e-1", "-1.50"},
		{"1e400", "10e399"}, {"12345678901234567890", "1234567890123456789e1"}, {"12345678901234567891"}, {"1", "1.0"},
	} {
		for _, number := range same {
			if a, b := AppendDecimal(nil, []byte(number)), AppendDecimal(nil, []byte(same[0])); !bytes.Equal(a, b) {
				t.Errorf("%s is %s and %s is %s", number, a, same[0], b)
			}
		}
	}
	if got := string(AppendDecimal([]byte("n="), []byte("-1.5"))); got != "n=-15e-1" {
		t.Errorf("got %s", got)
	}
}

// TestAppendDecimalIsTheDecimal: the form has the number's digits and, however long that is, its
// exponent.
func TestAppendDecimalIsTheDecimal(t *testing.T) {
	atRandom(t, func(t *testing.T, r *rand.Rand) {
		text := number(r, 25, 20, 22)
		mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
		exp, ok := new(big.Int).SetString("0"+strings.TrimPrefix(exponent, "+"), 10)
		if after, negative := strings.CutPrefix(exponent, "-"); negative {
			exp, ok = new(big.Int).SetString("-"+after, 10)
		}
		if !ok {
			t.Fatalf("the exponent of %s cannot be read", text)
		}
		mantissa, negative := strings.CutPrefix(mantissa, "-")
		whole, fraction, _ := strings.Cut(mantissa, ".")
		digits := strings.TrimLeft(whole+fraction, "0")
		short := strings.TrimRight(digits, "0")
		want := "n0"
		if short != "" {
			exp.Add(exp, big.NewInt(int64(len(digits)-len(short)-len(fraction))))
			want = "n" + map[bool]string{true: "-"}[negative] + short + "e" + exp.String()
		}
		if got := string(AppendDecimal([]byte("n"), []byte(text))); got != want {
			t.Fatalf("%s is %s; want %s", text, got, want)
		}
	})
}

func TestAppendStringBytesIsAppendString(t *testing.T) {
	for _, text := range []string{"", "plain", `qu"ote`, "\x00\n", "é😀", "\xff", strings.Repeat("long ", 50)} {
		if got, want := AppendStringBytes([]byte("<"), []byte(text)), AppendString([]byte("<"), text); !bytes.Equal(got, want) {
			t.Errorf("%q: got %s; want %s", text, got, want)
		}
	}
}
