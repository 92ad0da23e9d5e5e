package sidecar

import (
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/sluice-bus/sluice/internal/atomicfile"
)

// pendingEndsName is the file in the data folder with the ids of lives whose ends the store does
// not know yet, one per line; see roster.PendingEnds.
const pendingEndsName = "pending-ends"

// pendingEndsFile is a roster.PendingEnds.
type pendingEndsFile struct {
	path   string
	logger *slog.Logger
}

func (f pendingEndsFile) Load() []string {
	content, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.logger.Warn("cannot read how this sidecar stopped; its events in flight count as delivered", "file", f.path, "error", err)
	}
	return strings.FieldsFunc(string(content), func(r rune) bool { return r == '\n' })
}

func (f pendingEndsFile) Save(ids []string) error {
	if len(ids) == 0 {
		return atomicfile.Remove(f.path)
	}
	return atomicfile.Write(f.path, []byte(strings.Join(ids, "\n")+"\n"))
}
