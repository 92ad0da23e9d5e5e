package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

type docsCommand struct {
	Topic string `arg:"" optional:"" help:"The page; all are listed if it is left out."`
	Entry string `arg:"" optional:"" help:"An entry of the page: words of a heading, or a name in the first column of a table."`
}

func (*docsCommand) Help() string {
	return `The pages are in the program, as Markdown, and are those of its version.

Examples:

  sluice docs
  sluice docs troubleshooting
  sluice docs errors rate_limited
  sluice docs policy publish.rate
  sluice docs sidecar listen
  sluice docs metrics sluice_group_lag`
}

// Run prints the list of pages, a page, or an entry of it.
func (d *docsCommand) Run(app *program.App) error {
	pages := sluice.Pages()
	topics := slices.Sorted(maps.Keys(pages))
	if d.Topic == "" {
		for _, topic := range topics {
			title, _, _ := strings.Cut(strings.TrimPrefix(pages[topic], "# "), "\n")
			if _, err := fmt.Fprintf(app.Stdout, "%-24s %s\n", topic, title); err != nil {
				return err
			}
		}
		return nil
	}
	page, ok := pages[d.Topic]
	if !ok {
		return wire.Errorf(wire.NotFound, "there is no page %q%s", d.Topic, nearest.Known(d.Topic, topics))
	}
	if d.Entry != "" {
		known := entries(page)
		if page, ok = entry(page, d.Entry); !ok {
			return wire.Errorf(wire.NotFound, "the page %s has no entry %q%s", d.Topic, d.Entry, nearest.Hint(d.Entry, known))
		}
	}
	_, err := fmt.Fprint(app.Stdout, page)
	return err
}

// entry is the part of a page about something: the section whose heading has the words, or else the rows of tables whose first cell
// has them.
func entry(page, words string) (part string, found bool) {
	var section, rows, head []string
	level := 0 // of the heading of the section; 0: outside
	fenced := false
	for line := range strings.Lines(page) {
		fenced = fenced != strings.HasPrefix(line, "```")
		if depth := headingLevel(line); !fenced && depth > 0 && (level == 0 || depth <= level) {
			level = 0
			if len(section) == 0 && contains(line, words) {
				level = depth
			}
		}
		if level > 0 {
			section = append(section, line)
		}
		switch first, isRow := firstCell(line); {
		case !isRow || fenced:
			head = nil
		case len(head) < 2: // the names of the columns, and the line below
			head = append(head, line)
		case contains(first, words):
			rows = append(append(rows, head...), line)
			head = []string{"", ""} // once a table
		}
	}
	if len(section) > 0 {
		return strings.TrimSpace(strings.Join(section, "")) + "\n", true
	}
	return strings.Join(rows, ""), len(rows) > 0
}

// headingLevel is the number of signs of a heading; 0: the line is none.
func headingLevel(line string) int {
	text := strings.TrimLeft(line, "#")
	if !strings.HasPrefix(text, " ") {
		return 0
	}
	return len(line) - len(text)
}

func firstCell(line string) (cell string, isRow bool) {
	if !strings.HasPrefix(line, "|") {
		return "", false
	}
	cell, _, _ = strings.Cut(line[1:], "|")
	return strings.Trim(cell, " `"), true
}

func contains(text, words string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(words))
}

// entries are what a page has entries about.
func entries(page string) (all []string) {
	for line := range strings.Lines(page) {
		if depth := headingLevel(line); depth > 1 {
			all = append(all, strings.TrimSpace(line[depth:]))
		} else if cell, isRow := firstCell(line); isRow {
			all = append(all, cell)
		}
	}
	return all
}
