package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/store/embedded"
)

// Verify reads the embedded log of a folder that no sidecar runs on, and writes what it finds. With drop it removes the
// events that cannot be read, and says which. The error says that there is damage that is still there.
func Verify(ctx context.Context, dir string, drop bool, logger *slog.Logger, to io.Writer) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	f, err := pebblelog.Verify(ctx, pebblelog.Options{Dir: dir, NodeID: "verify", Logger: logger}, drop)
	for _, what := range append(f.Unused, f.Damage...) {
		fmt.Fprintln(to, what)
	}
	verb := "cannot be read"
	if drop {
		verb = "were dropped"
	}
	for _, x := range f.Lost {
		fmt.Fprintf(to, "topic %s, partition %d: %d events from seq %d to %d %s\n", x.Topic, x.Partition, x.Events, x.First, x.Last, verb)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(to, "%d events can be read, in %d closed segments and the last one\n", f.Events, f.Segments)
	if len(f.Damage) > 0 && !drop {
		return errors.New("the data folder is damaged: restore it from a backup, or go on without the events above with --drop-damaged")
	}
	return nil
}

// Backup writes a backup of the log of the sidecar that runs on a folder.
func Backup(ctx context.Context, dir string, to io.Writer) error {
	return embedded.Backup(ctx, dir, to)
}

// Restore makes a new data folder of a backup.
func Restore(dir string, backup io.Reader) error { return pebblelog.Restore(dir, backup) }
