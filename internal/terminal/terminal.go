// Package terminal is the output of the command line programs on a terminal: whether there is one,
// and the progress of a long task. It must not know the task.
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

// Size returns the columns and rows of a terminal: 80 and 24 where it does not tell them.
func Size(w io.Writer) (columns, rows int) {
	if file, ok := Raw(w).(*os.File); ok {
		if columns, rows, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return columns, rows
		}
	}
	return 80, 24
}
