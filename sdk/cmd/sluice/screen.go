package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"

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

// status is a line on a terminal that is drawn over and over; elsewhere it is
// none.
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

// redraw draws text, whose lines end with a newline, over the whole terminal,
// as much of it as there is room for.
func redraw(w io.Writer, text string) error {
	w = terminal.Raw(w)
	text = terminal.Shown(text)
	if file, ok := w.(*os.File); ok {
		if columns, rows, err := term.GetSize(int(file.Fd())); err == nil {
			text = crop(text, columns, rows-1)
		}
	}
	// Home, each line cleared to its end, then the rest of the screen.
	_, err := io.WriteString(w, "\x1b[H"+strings.ReplaceAll(text, "\n", "\x1b[K\n")+"\x1b[J")
	return err
}

// crop leaves as many lines as there are rows, the last of them saying how many
// are missing, and of each as many characters as there are columns.
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
