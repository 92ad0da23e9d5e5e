package main

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// printJSON writes v on one line.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// printList writes the elements of a list: with --json each on a line of its own, else as the rows
// of a table.
func printList[T any](app *program.App, c *client, list []T, head []string, row func(v *T) []string) error {
	if c.JSON {
		return printJSONLines(app.Stdout, list)
	}
	rows := make([][]string, len(list))
	for i := range list {
		rows[i] = row(&list[i])
	}
	return table(app.Stdout, head, rows)
}

// printSeq is printList of a sequence, of which it prints the first most elements; 0: all.
func printSeq[T any](app *program.App, c *client, seq iter.Seq2[T, error], most int, head []string, row func(v *T) []string) error {
	var rows [][]string
	n := 0
	for v, err := range seq {
		if err == nil && c.JSON {
			err = printJSON(app.Stdout, v)
		}
		if err != nil {
			return err
		}
		if !c.JSON {
			rows = append(rows, row(&v))
		}
		if n++; n == most {
			break
		}
	}
	if c.JSON {
		return nil
	}
	return table(app.Stdout, head, rows)
}

// printJSONLines writes each element as JSON, on a line of its own.
func printJSONLines[T any](w io.Writer, list []T) error {
	for _, v := range list {
		if err := printJSON(w, v); err != nil {
			return err
		}
	}
	return nil
}

// printDone says what was done: with --json as a document, else in a sentence.
func printDone(app *program.App, c *client, document any, sentence string, args ...any) error {
	if c.JSON {
		return printJSON(app.Stdout, document)
	}
	_, err := fmt.Fprintf(app.Stdout, sentence+"\n", args...)
	return err
}

// table writes rows in aligned columns, the head first.
func table(w io.Writer, head []string, rows [][]string) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		fmt.Fprintln(out, strings.Join(row, "\t")) // Flush has the error
	}
	return out.Flush()
}

// eventPrinter appends events as lines: as JSON, or for people as
//
//	2026-01-02T15:04:05.000Z  3/1042  0197…  key=customer-17  {"order":17}
type eventPrinter struct{ asJSON bool }

func (p eventPrinter) append(dst []byte, e *wire.Event, attempt int) []byte {
	if p.asJSON {
		return append(codec.AppendEventJSON(dst, e), '\n')
	}
	dst = append(dst, milliseconds(e.TS)...)
	if e.Spooled {
		dst = append(dst, "  spooled"...)
	} else {
		dst = fmt.Appendf(dst, "  %d/%d", e.Partition, e.Seq)
	}
	dst = fmt.Appendf(dst, "  %s", e.ID)
	if e.Key != "" {
		dst = fmt.Appendf(dst, "  key=%s", visible(e.Key))
	}
	if attempt > 1 {
		dst = fmt.Appendf(dst, "  attempt=%d", attempt)
	}
	if e.Binary {
		dst = fmt.Appendf(dst, "  (%d bytes) %q\n", len(e.Payload), e.Payload)
	} else {
		dst = fmt.Appendf(dst, "  %s\n", e.Payload)
	}
	return dst
}

// milliseconds is a time for people.
func milliseconds(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// visible quotes text that would break the line or hide in it.
func visible(text string) string {
	if quoted := fmt.Sprintf("%q", text); quoted != `"`+text+`"` || strings.ContainsRune(text, ' ') {
		return quoted
	}
	return text
}
