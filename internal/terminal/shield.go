package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Shield returns w, protected against harmful text if it is a terminal: control characters,
// invisible characters and those that change the direction of text are written as in JSON, \u001b.
// Lines, tabs and the colours of Colours pass. If w is not a terminal, it is w itself.
func Shield(w io.Writer) io.Writer {
	if file, ok := w.(*os.File); ok && Is(w) {
		return &shield{out: file, file: file}
	}
	return w
}

// Raw is the terminal behind a Shield, for a program's own movements of the cursor; else w.
func Raw(w io.Writer) io.Writer {
	if s, ok := w.(*shield); ok {
		return s.file
	}
	return w
}

// Colours are what passes a Shield of the sequences that terminals obey.
var Colours = struct{ Red, Green, Yellow, End string }{"\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"}

type shield struct {
	out  io.Writer
	file *os.File

	mu   sync.Mutex
	rest []byte // of a character that the last Write began
	text []byte // reused
}

func (s *shield) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = s.text[:0]
	todo := append(s.rest, p...)
	for len(todo) > 0 && utf8.FullRune(todo) {
		todo = todo[s.escape(todo):]
	}
	s.rest = bytes.Clone(todo)
	if _, err := s.out.Write(s.text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// escape takes the colour or the character that todo begins with, and returns its length in bytes.
func (s *shield) escape(todo []byte) int {
	for _, colour := range []string{Colours.Red, Colours.Green, Colours.Yellow, Colours.End} {
		if bytes.HasPrefix(todo, []byte(colour)) {
			s.text = append(s.text, colour...)
			return len(colour)
		}
	}
	s.text = appendShown(s.text, todo)
	_, n := utf8.DecodeRune(todo)
	return n
}

// appendShown appends the first character of text, escaped where it has to be.
func appendShown(dst, text []byte) []byte {
	r, n := utf8.DecodeRune(text)
	switch {
	case r == '\n' || r == '\t' || unicode.IsGraphic(r) && (r != utf8.RuneError || n > 1):
		return append(dst, text[:n]...)
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		return fmt.Appendf(dst, `\u%04x\u%04x`, high, low)
	}
	return fmt.Appendf(dst, `\u%04x`, r)
}

// Shown is text as a Shield shows it.
func Shown(text string) string {
	var dst []byte
	for b := []byte(text); len(b) > 0; {
		dst = appendShown(dst, b)
		_, n := utf8.DecodeRune(b)
		b = b[n:]
	}
	return string(dst)
}
