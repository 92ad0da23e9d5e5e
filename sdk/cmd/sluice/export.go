package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type exportCommand struct {
	Topic  string   `arg:"" help:"The topic."`
	File   string   `arg:"" help:"The file to write; - is standard output."`
	Resume bool     `help:"Go on where an interrupted export stopped, or where the file ends."`
	From   *moment  `placeholder:"TIME" help:"Only events of this time or later: 2026-11-27T10:00, or 1h for an hour ago."`
	Until  *moment  `placeholder:"TIME" help:"Only events of this time or earlier."`
	Key    selector `help:"Only events with this key."`
	fleetFlags
}

func (*exportCommand) Help() string {
	return `Writes events as JSON, one on each line, ordered by time. The file appears under
its name once it is complete. What an export that failed has written is in
FILE.partial: --resume goes on with that, without a gap and without a double. Where
there is none, --resume adds to FILE what comes behind its last event. Give it
the same filters. Events that were accepted meanwhile with a time before the last
event of the file are not added. On standard output only the exit status tells
whether all is there.

Examples:

  sluice export orders orders.ndjson
  sluice export orders orders.ndjson --resume
  sluice export orders all.ndjson --fleet
  sluice export orders - --from 7d | gzip > orders.ndjson.gz`
}

// Run exports.
func (x *exportCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	scope, err := x.scope()
	switch {
	case err != nil:
		return err
	case x.Resume && x.File == "-":
		return program.Usagef("--resume needs a file: what went to standard output is not known")
	case x.Resume && x.Partial:
		return program.Usagef("--resume does not go with --partial: what was left out lies before the end of the file")
	}
	job := exporting{http: h, query: sluice.ExportQuery{
		Topic: x.Topic, FromTS: x.From.optional(), ToTS: x.Until.optional(), Key: string(x.Key), Scope: scope, Partial: x.Partial,
	}}
	job.query.Missing = func(names []string) { job.missing = names }
	finish := job.watch(ctx, app.Stderr)
	if x.File == "-" {
		err = job.copy(ctx, app.Stdout)
	} else {
		err = x.write(ctx, app, &job)
	}
	finish()
	if err != nil {
		return x.explain(app.Stderr, err)
	}
	sayMissing(app.Stderr, job.missing)
	done := map[string]any{"exported": job.count, "file": x.File}
	behind := ""
	if x.Resume {
		done["resumed_after"] = job.before
		behind = fmt.Sprintf(", behind the %d that were there", job.before)
	}
	if len(job.missing) > 0 {
		done["missing"] = job.missing
	}
	if x.File != "-" {
		err = printDone(app, c, done, "exported %d events to %s%s", job.count, x.File, behind)
	}
	switch {
	case err != nil:
	case len(job.missing) > 0:
		err = errMissing
	case job.count+job.before == 0 && scope == "store":
		err = exists(ctx, h, x.Topic)
	}
	return err
}

// write exports to the file: under another name beside it, which is changed when all of it is on the disk, or with --resume to
// the end of a file that is there.
func (x *exportCommand) write(ctx context.Context, app *program.App, job *exporting) (err error) {
	name, flags := x.File+".partial", os.O_CREATE|os.O_RDWR
	switch {
	case !x.Resume:
		flags |= os.O_TRUNC
	case !isFile(name) && isFile(x.File):
		name = x.File
	}
	file, err := os.OpenFile(name, flags, 0o666)
	if err != nil {
		return err
	}
	defer file.Close() // again: the error of the first time counts
	if err := job.resume(file); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := job.copy(ctx, file); err != nil {
		if job.before+job.count == 0 && name != x.File {
			return errors.Join(err, os.Remove(name))
		}
		fmt.Fprintf(app.Stderr, "stopped after %d events, which are in %s: --resume goes on\n", job.before+job.count, name)
		return err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil || name == x.File {
		return err
	}
	return os.Rename(name, x.File)
}

// exporting is one export under way.
type exporting struct {
	http    *admin.HTTP
	query   sluice.ExportQuery
	count   int
	missing []string
	seen    func(line []byte) // each event

	before int             // events that are in the file
	there  map[string]bool // ids of those whose ts is that of the last of them, where the export begins
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

func isFile(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// resume reads a file, cuts off the rest of a line at its end, and makes the export begin there.
func (e *exporting) resume(file *os.File) error {
	in := bufio.NewReaderSize(file, 64<<10)
	var end int64 // of the last whole line
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		var event struct {
			ID, Topic string
			TS        int64
		}
		switch err := json.Unmarshal(line, &event); {
		case err != nil || event.ID == "" || event.Topic != e.query.Topic:
			return fmt.Errorf("line %d is not an event of topic %s", e.before+1, e.query.Topic)
		case e.before == 0 || event.TS > *e.query.FromTS:
			e.query.FromTS, e.there = &event.TS, map[string]bool{}
		case event.TS < *e.query.FromTS:
			return fmt.Errorf("line %d is older than the one before, so the file is not the beginning of an export", e.before+1)
		}
		e.there[event.ID] = true
		e.before++
		end += int64(len(line))
	}
	_, err := file.Seek(end, io.SeekStart)
	return errors.Join(err, file.Truncate(end))
}

// isThere reports whether the file that is resumed has an event.
func (e *exporting) isThere(line []byte) bool {
	if len(e.there) == 0 {
		return false
	}
	var event struct {
		ID string
		TS int64
	}
	_ = json.Unmarshal(line, &event) // what is no event is not there
	if event.TS != *e.query.FromTS {
		e.there = nil // and none behind it
	}
	return e.there[event.ID]
}

// copy writes the lines of the export.
func (e *exporting) copy(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	for text, err := range e.http.ExportLines(ctx, e.query) {
		if err != nil {
			return errors.Join(err, out.Flush()) // what came is kept
		}
		if e.isThere(text) {
			continue
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
