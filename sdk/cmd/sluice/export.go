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
)

type exportCommand struct {
	Topic  string `arg:"" help:"The topic."`
	Output string `short:"o" required:"" placeholder:"FILE" help:"The file to write; - is standard output."`
	FromTS *int64 `name:"from-ts" placeholder:"MS" help:"Only events of this time or later, in milliseconds since the epoch."`
	ToTS   *int64 `name:"to-ts" placeholder:"MS" help:"Only events of this time or earlier."`
	Key    string `help:"Only events with this key."`
	Scope  string `enum:"store,fleet" default:"store" help:"Whose events: store (this sidecar's store) or fleet (all sidecars')."`
}

func (*exportCommand) Help() string {
	return `Writes events as JSON, one on each line, ordered by time. The file appears under
its name once it is complete; a failed export leaves nothing behind, and what
was there before untouched. On standard output only the exit status tells.

Examples:

  sluice export orders -o orders.ndjson
  sluice export orders -o - --from-ts 1723140000000 | gzip > orders.ndjson.gz`
}

// Run exports.
func (x *exportCommand) Run(ctx context.Context, app *program.App, c *client) error {
	progress := terminal.NewProgress(app.Stderr, "exporting", 0)
	count := 0
	copyTo := func(w io.Writer) (err error) {
		count, err = x.copy(ctx, c, w, progress)
		return err
	}
	if x.Output == "-" {
		err := copyTo(app.Stdout)
		progress.Finish()
		return err
	}
	err := writeWhole(x.Output, copyTo)
	progress.Finish()
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(app.Stdout, map[string]any{"exported": count, "file": x.Output})
	}
	_, err = fmt.Fprintf(app.Stdout, "exported %d events to %s\n", count, x.Output)
	return err
}

// copy writes the lines of the export.
func (x *exportCommand) copy(ctx context.Context, c *client, w io.Writer, progress *terminal.Progress) (count int, err error) {
	h := c.http()
	defer h.CloseIdle()
	query := sluice.ExportQuery{Topic: x.Topic, FromTS: x.FromTS, ToTS: x.ToTS, Key: x.Key, Scope: x.Scope}
	out := bufio.NewWriterSize(w, 64<<10)
	for text, err := range h.ExportLines(ctx, query) {
		if err != nil {
			return count, err
		}
		_, _ = out.Write(text)
		if err := out.WriteByte('\n'); err != nil {
			return count, err
		}
		count++
		progress.Add(1)
	}
	return count, out.Flush()
}

// writeWhole writes a file under another name beside it, and renames it when
// all of it is on the disk.
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
