package sidecar

import (
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/sluice-bus/sluice/internal/atomicfile"
)

// unendedName is the file in the data folder that has the ids of lives whose
// ends the store has not heard of, one a line; see roster.Unended.
const unendedName = "unended"

// unendedFile is a roster.Unended.
type unendedFile struct {
	path   string
	logger *slog.Logger
}

func (f unendedFile) Kept() []string {
	content, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.logger.Warn("cannot read how this sidecar stopped; what it had counts as delivered", "file", f.path, "error", err)
	}
	return strings.FieldsFunc(string(content), func(r rune) bool { return r == '\n' })
}

func (f unendedFile) Keep(ids []string) error {
	if len(ids) == 0 {
		return atomicfile.Remove(f.path)
	}
	return atomicfile.Write(f.path, []byte(strings.Join(ids, "\n")+"\n"))
}
