package terminal

import (
	"bytes"
	"testing"
)

func TestShield(t *testing.T) {
	for text, want := range map[string]string{
		"plain é 漢 👍\tx\n":              "plain é 漢 👍\tx\n",
		"\x1b]0;title\a\x1b[2J":         `\u001b]0;title\u0007\u001b[2J`,
		"a\rb\bc\x7f\x00":               `a\u000db\u0008c\u007f\u0000`,
		"\u202eevil\u2066x\u200f":       `\u202eevil\u2066x\u200f`,
		"a\u200bb\ufeff\u2028\u00ad":    `a\u200bb\ufeff\u2028\u00ad`,
		"\u009b31m\x9b31m":              `\u009b31m\ufffd31m`,
		"\U000e0041":                    `\udb40\udc41`,
		"\ufffd":                        "\ufffd",
		Colours.Red + "x" + Colours.End: Colours.Red + "x" + Colours.End,
		"\x1b[31;5mx":                   `\u001b[31;5mx`,
	} {
		var whole, parts bytes.Buffer
		s := &shield{out: &whole}
		if n, err := s.Write([]byte(text)); n != len(text) || err != nil || whole.String() != want {
			t.Errorf("%q: %q, want %q; %d %v", text, &whole, want, n, err)
		}
		if bytes.Contains([]byte(text), []byte(Colours.Red)) {
			continue
		}
		if got := Shown(text); got != want {
			t.Errorf("%q: shown as %q", text, got)
		}
		s = &shield{out: &parts}
		for i := range len(text) {
			if _, err := s.Write([]byte{text[i]}); err != nil {
				t.Fatal(err)
			}
		}
		if parts.String() != want {
			t.Errorf("%q byte by byte: %q, want %q", text, &parts, want)
		}
	}
	var pipe bytes.Buffer
	if Shield(&pipe) != &pipe || Raw(&pipe) != &pipe {
		t.Error("what is no terminal is shielded")
	}
}
