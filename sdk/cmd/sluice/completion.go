package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (*completionCommand) Help() string {
	return `Prints a script that makes the shell complete commands, flags, and the names of
topics, groups and contexts.

Examples:

  source <(sluice completion bash)
  sluice completion zsh > "${fpath[1]}/_sluice"
  sluice completion fish > ~/.config/fish/completions/sluice.fish`
}

// scripts call the command complete with the words of the line up to the cursor. That of zsh is sourced, or is a file in $fpath: zsh
// then runs it as the function _sluice at the first completion.
var scripts = map[string]string{
	"bash": `_sluice() {
  local IFS=$'\n'
  COMPREPLY=($(sluice complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _sluice sluice
`,
	"zsh": `#compdef sluice
_sluice() {
  local -a words_found
  words_found=("${(@f)$(sluice complete -- "${words[@]:1:$((CURRENT-1))}" 2>/dev/null)}")
  compadd -- $words_found || _files
}
if [ "$funcstack[1]" = _sluice ]; then _sluice; else compdef _sluice sluice; fi
`,
	"fish": `complete -c sluice -f -a '(sluice complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`,
}

// Run prints the script.
func (s *completionCommand) Run(app *program.App) error {
	_, err := fmt.Fprint(app.Stdout, scripts[s.Shell])
	return err
}

// completeCommand is what the scripts call.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// completeTimeout bounds what a person waits for names that servers know.
const completeTimeout = time.Second

// Run prints what the last word may become, each on a line.
func (w *completeCommand) Run(ctx context.Context, app *program.App, parsed *kong.Context, h *admin.HTTP) error {
	words := w.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	ask := func(kind string, before []string) []string { return names(ctx, h, kind, before) }
	for _, word := range candidates(parsed.Model.Node, words, ask) {
		if _, err := fmt.Fprintln(app.Stdout, word); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns what the last of the words may become. ask returns the names of a kind that servers know, behind the
// arguments before.
func candidates(node *kong.Node, words []string, ask func(kind string, before []string) []string) (found []string) {
	last := words[len(words)-1]
	flags := slices.Clone(node.Flags)
	var before []string // arguments of the command
	var valueOf *kong.Flag
	for _, word := range words[:len(words)-1] {
		switch child := childOf(node, word); {
		case valueOf != nil:
			valueOf = nil
		case strings.HasPrefix(word, "-"):
			if flag := flagOf(flags, word); flag != nil && !flag.IsBool() && !strings.Contains(word, "=") {
				valueOf = flag
			}
		case child != nil && len(before) == 0:
			node = child
			flags = append(flags, node.Flags...)
		default:
			before = append(before, word)
		}
	}
	switch {
	case valueOf != nil:
		found = append(valueOf.EnumSlice(), ask(valueOf.Name, before)...)
	case strings.HasPrefix(last, "-"):
		for _, flag := range flags {
			if !flag.Hidden {
				found = append(found, "--"+flag.Name)
			}
		}
	default:
		if len(before) == 0 {
			for _, child := range node.Children {
				if !child.Hidden {
					found = append(found, child.Name)
				}
			}
		}
		if of := withDefault(node); len(before) < len(of.Positional) {
			kind := of.Positional[len(before)]
			found = append(append(found, kind.EnumSlice()...), ask(kind.Name, before)...)
		}
	}
	found = slices.DeleteFunc(found, func(word string) bool { return word == "" || !strings.HasPrefix(word, last) })
	slices.Sort(found)
	return slices.Compact(found)
}

// withDefault is the command that a node is without the name of one below it.
func withDefault(node *kong.Node) *kong.Node {
	if node.DefaultCmd != nil {
		return node.DefaultCmd
	}
	return node
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

func flagOf(flags []*kong.Flag, word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, flag := range flags {
		if flag.Name == name || len(name) == 1 && string(flag.Short) == name {
			return flag
		}
	}
	return nil
}

// names are those of topics, groups and contexts; none where nobody answers.
func names(ctx context.Context, h *admin.HTTP, kind string, before []string) (found []string) {
	switch kind {
	case "topic":
		topics, err := h.Topics(ctx)
		if err != nil {
			return nil
		}
		for _, t := range topics {
			found = append(found, t.Topic)
		}
	case "group":
		if len(before) > 0 {
			found, _ = h.Groups(ctx, before[0]) // without an answer there is nothing to offer
		}
	case "context":
		if at, err := ownContexts(); err == nil {
			found, _ = at.names() // likewise
		}
	}
	return found
}
