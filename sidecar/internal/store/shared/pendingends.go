package shared

import (
	"errors"
	"log/slog"
	"os"
	"strings"

	"github.com/sluice-bus/sluice/internal/atomicfile"
)

// pendingEnds is a roster.PendingEnds: a file in the data folder, an id per line.
type pendingEnds struct {
	path   string
	logger *slog.Logger
}

func (f pendingEnds) Load() []string {
	content, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.logger.Warn("cannot read how this sidecar stopped; its events in flight count as delivered", "file", f.path, "error", err)
	}
	return strings.FieldsFunc(string(content), func(r rune) bool { return r == '\n' })
}

func (f pendingEnds) Save(ids []string) error {
	if len(ids) == 0 {
		return atomicfile.Remove(f.path)
	}
	return atomicfile.Write(f.path, []byte(strings.Join(ids, "\n")+"\n"))
}
