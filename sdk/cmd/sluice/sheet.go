package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// sheet is what people read an answer on.
type sheet struct {
	io.Writer
	columns int // of the terminal; 0: there is none
	wide    bool
}

// newSheet makes one whose text goes to out, and from there to where stdout leads.
func newSheet(out, stdout io.Writer, f format) *sheet {
	s := &sheet{Writer: out, wide: f == formatWide}
	if terminal.Is(stdout) {
		s.columns, _ = terminal.Size(stdout)
	}
	return s
}

// minColumn is the width to which a column is cut at most.
const minColumn = 8

// table writes rows in aligned columns, the head first; a row has the cells of the columns that are there only with -o wide
// behind the others. On a terminal long cells are cut so that each row fits on a line, but for -o wide.
func (s *sheet) table(head, wide []string, rows [][]string) error {
	columns := len(head)
	if s.wide {
		columns += len(wide)
	}
	rows = append([][]string{append(slices.Clone(head), wide...)}, rows...)
	widths := make([]int, columns)
	for _, row := range rows {
		for i, cell := range row[:columns] {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for s.columns > 0 && !s.wide {
		all, widest := 2*(columns-1), 0
		for i, width := range widths {
			if all += width; width > widths[widest] {
				widest = i
			}
		}
		if all <= s.columns || widths[widest] <= minColumn {
			break
		}
		widths[widest]--
	}
	var out bytes.Buffer
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row[:columns] {
			if chars := []rune(cell); len(chars) > widths[i] {
				cell = string(chars[:widths[i]-1]) + "…"
			}
			fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := out.WriteTo(s)
	return err
}

// time is a cell with a time: how long ago it was, or is ahead; with -o wide also when.
func (s *sheet) time(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	text := ago(time.Since(at))
	if s.wide {
		text = at.UTC().Format(timeLayout) + " (" + text + ")"
	}
	return text
}

// millis is a cell with the time of an event; nil: there is none.
func (s *sheet) millis(ts *int64) string {
	if ts == nil {
		return "-"
	}
	return s.time(time.UnixMilli(*ts))
}

// from says who told what is shown, where somebody looks: not in a pipe.
func (s *sheet) from(server, address string) error {
	if s.columns == 0 && !s.wide {
		return nil
	}
	_, err := fmt.Fprintf(s, "\nas the %s at %s says\n", server, address)
	return err
}

// keyboard is the keys that are pressed while something is shown again and again. take reports whether to go on.
type keyboard struct {
	pressed <-chan byte // nil: there are none
	take    func(key byte) bool
}

// repeat shows something again each second, and after each key. A server that goes away once it has answered is waited for.
func repeat(ctx context.Context, app *program.App, f format, keys keyboard, once func(io.Writer) error) error {
	w := watched{app: app, onScreen: terminal.Is(app.Stdout) && !f.isDocument(), apart: !f.isDocument()}
	if w.onScreen {
		// A terminal's other screen, so that what was printed before comes back.
		own := terminal.Raw(app.Stdout)
		fmt.Fprint(own, "\x1b[?1049h\x1b[?25l")
		defer fmt.Fprint(own, "\x1b[?25h\x1b[?1049l")
	}
	for {
		var text bytes.Buffer
		err := once(&text)
		if ctx.Err() != nil {
			return nil // interrupted, which is how it ends
		}
		if err := w.print(text.String(), err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case key := <-keys.pressed:
			if !keys.take(key) {
				return nil
			}
		case <-time.After(watchInterval):
		}
	}
}

// watchInterval is how often --watch asks.
const watchInterval = time.Second

// watched is what --watch has shown.
type watched struct {
	app      *program.App
	onScreen bool
	apart    bool // by an empty line

	last string
	at   time.Time // of last; zero: there was no answer yet
}

// print shows what came, or what went wrong. Without any answer so far that ends it.
func (w *watched) print(text string, failed error) error {
	first := w.at.IsZero()
	switch {
	case failed == nil || statusOf(failed) == statusPart:
		w.last, w.at = text, time.Now()
		failed = nil
	case first:
		return failed
	}
	if w.onScreen {
		old := ""
		if failed != nil {
			old = fmt.Sprintf("as of %s, not up to date: %s\n\n", w.at.UTC().Format(timeLayout), plain(failed.Error()))
		}
		return redraw(w.app.Stdout, old+w.last)
	}
	if failed != nil {
		_, err := fmt.Fprintf(w.app.Stderr, "%s: %v\n", w.app.Name, failed)
		return err
	}
	if w.apart && !first {
		fmt.Fprintln(w.app.Stdout)
	}
	_, err := fmt.Fprint(w.app.Stdout, text)
	return err
}

// ago writes how long something is past, or ahead, roughly: 3s ago, 5m ago, in 2h, 4d ago.
func ago(d time.Duration) string {
	text := rough(max(d, -d))
	if d < 0 && text != "0s" {
		return "in " + text
	}
	return text + " ago"
}

func rough(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// timeLayout is how times are written.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// milliseconds is a time for people.
func milliseconds(ms int64) string { return time.UnixMilli(ms).UTC().Format(timeLayout) }

// watchFlag is the flag of commands that show figures that move.
type watchFlag struct {
	Watch bool `short:"w" help:"Show it again each second, until it is interrupted."`
}

// part is the first elements of a list.
type part[T any] struct {
	elements []T
	total    int // of the list
}

// maxPage is the most elements that a page of a list may have.
const maxPage = 1000

// first asks for the first most elements of a list of a topic, 0 for all, page after page. A list may be empty because there is
// no such topic.
func first[T any](ctx context.Context, c *client, h *admin.HTTP, topic string, most int,
	page func(ctx context.Context, limit int, cursor string) (elements []T, total int, next string, err error)) (p part[T], err error) {
	cursor := ""
	for {
		limit := maxPage
		if most > 0 {
			limit = min(limit, most-len(p.elements))
		}
		err := c.tell(ctx, func(ctx context.Context) error {
			elements, total, next, err := page(ctx, limit, cursor)
			p.elements, p.total, cursor = append(p.elements, elements...), total, next
			return err
		})
		switch {
		case err == nil && cursor == "" && len(p.elements) == 0:
			return p, c.tell(ctx, func(ctx context.Context) error { return exists(admin.WithAnswers(ctx, nil), h, topic) })
		case err != nil || cursor == "" || len(p.elements) == most:
			return p, err
		}
	}
}

// print writes the elements as a table, and says how many are left out.
func (p part[T]) print(s *sheet, head, wide []string, rows [][]string) error {
	err := s.table(head, wide, rows)
	if err == nil && p.total > len(rows) {
		_, err = fmt.Fprintf(s, "\n%d of %d are shown: --max 0 shows all\n", len(rows), p.total)
	}
	return err
}
