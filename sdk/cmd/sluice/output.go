package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// printJSON writes v on one line.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
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
