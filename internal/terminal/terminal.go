// Package terminal is what the command line programs show a person who watches: whether anybody does, and how far a
// long task has come. It must not know what is being done.
package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Is tells whether w is a terminal, shielded or not, so that a person reads along. Anything but an *os.File is none.
func Is(w io.Writer) bool {
	file, ok := Raw(w).(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// defaultWidth is what a terminal that does not tell its width is taken to have.
const defaultWidth = 80

func width(w io.Writer) int {
	if file, ok := Raw(w).(*os.File); ok {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return defaultWidth
}
