package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type exportCommand struct {
	Topic  string   `arg:"" help:"The topic."`
	Output string   `short:"o" required:"" placeholder:"FILE" help:"The file to write; - is standard output."`
	From   *moment  `placeholder:"TIME" help:"Only events of this time or later: 2026-11-27T10:00, or 1h for an hour ago."`
	Until  *moment  `placeholder:"TIME" help:"Only events of this time or earlier."`
	Key    selector `help:"Only events with this key."`
	fleetFlags
}

func (*exportCommand) Help() string {
	return `Writes events as JSON, one on each line, ordered by time. The file appears under
its name once it is complete; a failed export leaves nothing behind, and what
was there before untouched. On standard output only the exit status tells.

Examples:

  sluice export orders -o orders.ndjson
  sluice export orders -o all.ndjson --fleet
  sluice export orders -o - --from 7d | gzip > orders.ndjson.gz`
}

// Run exports.
func (x *exportCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	scope, err := x.scope()
	if err != nil {
		return err
	}
	job := exporting{http: h, query: sluice.ExportQuery{
		Topic: x.Topic, FromTS: x.From.optional(), ToTS: x.Until.optional(), Key: string(x.Key), Scope: scope, Partial: x.Partial,
	}}
	job.query.Missing = func(names []string) { job.missing = names }
	finish := job.watch(ctx, app.Stderr)
	if x.Output == "-" {
		err = job.copy(ctx, app.Stdout)
	} else {
		err = writeWhole(x.Output, func(w io.Writer) error { return job.copy(ctx, w) })
	}
	finish()
	if err != nil {
		return x.explain(app.Stderr, err)
	}
	sayMissing(app.Stderr, job.missing)
	done := map[string]any{"exported": job.count, "file": x.Output}
	if len(job.missing) > 0 {
		done["missing"] = job.missing
	}
	if x.Output != "-" {
		err = printDone(app, c, done, "exported %d events to %s", job.count, x.Output)
	}
	switch {
	case err != nil:
	case len(job.missing) > 0:
		err = errMissing
	case job.count == 0 && scope == "store":
		err = exists(ctx, h, x.Topic)
	}
	return err
}

// exporting is one export under way.
type exporting struct {
	http    *admin.HTTP
	query   sluice.ExportQuery
	count   int
	missing []string
	seen    func(line []byte) // each event
}

// watch shows the progress on a terminal until finish is called: of a fleet also the sidecars that
// do not answer, and the events of each part.
func (e *exporting) watch(ctx context.Context, stderr io.Writer) (finish func()) {
	if e.query.Scope != "fleet" || !terminal.Is(stderr) {
		progress := terminal.NewProgress(stderr, "exporting", 0)
		e.seen = func([]byte) { progress.Add(1) }
		return progress.Finish
	}
	progress := newFleetProgress(stderr)
	// The export goes on where the caller may not list the fleet, or the sidecar cannot.
	if peers, err := e.http.Peers(ctx); err == nil {
		progress.fleet(peers)
	}
	e.query.Progress, e.seen = progress.told, progress.event
	return progress.finish
}

// copy writes the lines of the export.
func (e *exporting) copy(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	for text, err := range e.http.ExportLines(ctx, e.query) {
		if err != nil {
			return err
		}
		_, _ = out.Write(text)
		if err := out.WriteByte('\n'); err != nil {
			return err
		}
		e.count++
		e.seen(text)
	}
	return out.Flush()
}

// writeWhole writes a file under another name beside it, and renames it when all of it is on the
// disk.
func writeWhole(name string, write func(io.Writer) error) (err error) {
	partial := filepath.Join(filepath.Dir(name), fmt.Sprintf(".%s.%d.partial", filepath.Base(name), os.Getpid()))
	file, err := os.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close() // it may be closed already
			_ = os.Remove(partial)
		}
	}()
	if err := write(file); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(partial, name)
}
