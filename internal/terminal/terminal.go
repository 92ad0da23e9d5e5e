// Package terminal is the output of the command line programs on a terminal: whether there is one, and the progress of
// a long task. It must not know the task.
package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Is reports whether w is a terminal, shielded or not. Only an *os.File can be one.
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
