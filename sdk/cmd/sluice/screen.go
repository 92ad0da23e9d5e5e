package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/sluice-bus/sluice/internal/terminal"
)

// ink colours text on a terminal, and nowhere else.
type ink bool

func inkFor(w io.Writer) ink {
	return ink(terminal.Is(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (i ink) red(text string) string    { return i.in(terminal.Colours.Red, text) }
func (i ink) green(text string) string  { return i.in(terminal.Colours.Green, text) }
func (i ink) yellow(text string) string { return i.in(terminal.Colours.Yellow, text) }

func (i ink) in(colour, text string) string {
	if !i {
		return text
	}
	return colour + text + terminal.Colours.End
}

// plain quotes foreign text that would control a terminal.
func plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// statusLine is a line on a terminal that is drawn again and again; elsewhere it shows nothing.
type statusLine struct{ out io.Writer }

func newStatusLine(w io.Writer) statusLine {
	if !terminal.Is(w) {
		w = io.Discard
	}
	return statusLine{w}
}

// show puts text in the line's place; "" takes it away.
func (l statusLine) show(text string) {
	fmt.Fprint(terminal.Raw(l.out), "\r\x1b[K"+terminal.Shown(text))
}

// redraw draws text, whose lines end with a newline, over the whole terminal, as much of it as
// there is room for.
func redraw(w io.Writer, text string) error {
	columns, rows := terminal.Size(w)
	text = crop(terminal.Shown(text), columns, rows-1)
	// Home, each line cleared to its end, then the rest of the screen.
	_, err := io.WriteString(terminal.Raw(w), "\x1b[H"+strings.ReplaceAll(text, "\n", "\x1b[K\r\n")+"\x1b[J")
	return err
}

// crop cuts text to the rows, of which the last then says how many are missing, and each line to
// the columns.
func crop(text string, columns, rows int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > rows && rows > 1 {
		more := len(lines) - rows + 1
		lines = append(lines[:rows-1], fmt.Sprintf("… and %d more", more))
	}
	for i, line := range lines {
		if chars := []rune(line); len(chars) > columns && columns > 0 {
			lines[i] = string(chars[:columns])
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
