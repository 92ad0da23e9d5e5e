// Package tutorial runs the commands of docs/tutorial.md and docs/recipes line by line, and compares what they print with what the
// pages show. A page has them in fenced blocks:
//
//   - console: each line that begins with "$ ", with the lines behind it that begin with "> ", is a command; all run in one shell.
//     The other lines are what it prints. In these "…" stands for any text, and alone on a line for any lines; runs of spaces are one.
//   - console background: one command that goes on until the end of the page, like a program in a terminal of its own. What it
//     prints first is compared.
//
// Other blocks are not run. The ports of the pages are replaced by free ones.
package tutorial

import (
	"fmt"
	"regexp"
	"strings"
)

// block is a fenced block of commands.
type block struct {
	line       int // of the page, where it begins
	background bool
	steps      []step
}

// step is a command and what it prints.
type step struct{ command, want string }

// blocks are the blocks of a page that are run.
func blocks(page string) ([]block, error) {
	var all []block
	var open *block
	fenced := false
	for number, line := range strings.Split(page, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !fenced:
			fenced = true
			if info == "console" || info == "console background" {
				open = &block{line: number + 1, background: info != "console"}
			}
		case fence:
			fenced = false
			if open != nil {
				if len(open.steps) == 0 || open.background && len(open.steps) != 1 {
					return nil, fmt.Errorf("line %d: a block of %d commands", open.line, len(open.steps))
				}
				all, open = append(all, *open), nil
			}
		case open != nil:
			if err := open.add(line); err != nil {
				return nil, fmt.Errorf("line %d: %w", number+1, err)
			}
		}
	}
	if fenced {
		return nil, fmt.Errorf("a block is not closed")
	}
	return all, nil
}

func (b *block) add(line string) error {
	if command, ok := strings.CutPrefix(line, "$ "); ok {
		b.steps = append(b.steps, step{command: command})
		return nil
	}
	if len(b.steps) == 0 {
		return fmt.Errorf("%q comes before any command", line)
	}
	last := &b.steps[len(b.steps)-1]
	if more, ok := strings.CutPrefix(line, "> "); ok && last.want == "" {
		last.command += "\n" + more
	} else {
		last.want += line + "\n"
	}
	return nil
}

var spaces = regexp.MustCompile(` +`)

// shown reports whether a page shows what a command has printed; prefix: at least its beginning.
func shown(want, got string, prefix bool) bool {
	var pattern strings.Builder
	pattern.WriteString(`^`)
	for line := range strings.Lines(spaces.ReplaceAllString(want, " ")) {
		if line == "…\n" {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*"))
	}
	if !prefix {
		pattern.WriteString(`$`)
	}
	return regexp.MustCompile(pattern.String()).MatchString(spaces.ReplaceAllString(got, " "))
}
