package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/internal/atomicfile"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// contextCommand is the commands about contexts. A context is a file of settings, as --config takes
// it, that has a name.
type contextCommand struct {
	Add    contextAddCommand    `cmd:"" asks:"app replay ops plane context" help:"Add a context with the servers, token file and CA that are given, or replace it."`
	Use    contextUseCommand    `cmd:"" help:"Make a context the current one."`
	List   contextListCommand   `cmd:"" help:"List the contexts."`
	Show   contextShowCommand   `cmd:"" help:"Print a context's settings."`
	Remove contextRemoveCommand `cmd:"" help:"Remove a context."`
}

func (*contextCommand) Help() string {
	return `A context has a name for the servers that commands ask. What a context sets is
overridden by the environment (SLUICE_URL and so on) and by flags; --config names
another file in its place. Contexts are files in ~/.config/sluice/contexts (or
$XDG_CONFIG_HOME), and may set every flag.

Examples:

  sluice context add prod --url https://sluice.example:7070 --token-file ~/.sluice-token
  sluice context use prod
  sluice --context staging topics`
}

// contexts is the folder of the contexts and of the name of the current one.
type contexts struct{ folder string }

// ownContexts finds the folder of whoever runs this process.
func ownContexts() (contexts, error) {
	folder := os.Getenv("XDG_CONFIG_HOME")
	if folder == "" {
		home := os.Getenv("HOME")
		if home == "" {
			return contexts{}, errors.New("contexts are in the folder of the environment variable XDG_CONFIG_HOME or HOME, and neither is set")
		}
		folder = filepath.Join(home, ".config")
	}
	return contexts{filepath.Join(folder, "sluice")}, nil
}

func (c contexts) file(name string) string {
	return filepath.Join(c.folder, "contexts", name+".yaml")
}

// current is the name of the current context, "" for none.
func (c contexts) current() (string, error) {
	text, err := os.ReadFile(filepath.Join(c.folder, "context"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

func (c contexts) names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(c.folder, "contexts"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ".yaml"); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// need returns an error unless there is a context of that name.
func (c contexts) need(name string) error {
	names, err := c.names()
	if err == nil && !slices.Contains(names, name) {
		err = wire.Errorf(wire.NotFound, "there is no context %q; there are: %s", name, orNone(names))
	}
	return err
}

// configFile is the file of the context that is named, or of the current one.
func configFile(value func(flag string) string) (string, error) {
	at, err := ownContexts()
	name := value("context")
	if err != nil {
		if name == "" {
			return "", nil
		}
		return "", err
	}
	if name == "" {
		if name, err = at.current(); err != nil || name == "" {
			return "", err
		}
	}
	if err := at.need(name); err != nil {
		return "", program.Usagef("%w", err)
	}
	return at.file(name), nil
}

// checkContextName refuses what is no name of a file.
func checkContextName(name string) error {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `/\:`+"\x00\n") {
		return program.Usagef("%q cannot name a context: it may have no slash, backslash or colon, and no dot at its beginning", name)
	}
	return nil
}

type contextAddCommand struct {
	controlPlane
	Name string `arg:"" help:"The context's name."`
}

func (*contextAddCommand) Help() string {
	return `Saves the flags that are given. The sidecar at --url names its other
listeners; where it needs a token for that, give --token-file, or their URLs. With
--store, commands about topics, events and groups ask the control plane about that
store (the store_id of "sluice fleet -o wide").

Examples:

  sluice context add local --url http://127.0.0.1:7070
  sluice context add prod --url https://sluice.example:7070 --ca ca.pem \
    --token-file ~/.sluice-token --control-plane-url https://plane.example:7080
  sluice context add eu --control-plane-url https://plane.example:7080 \
    --store 5b9fb0b4-4f7c-4a37-a0d3-2f1f7a7f6d1c`
}

// contextFlags are the flags that a context may be made of; files have absolute paths in it.
var contextFlags = map[string]bool{"url": false, "replay-url": false, "ops-url": false, "control-plane-url": false, "store": false,
	"user": false, "timeout": false, "token-file": true, "ca": true}

// Run saves the context.
func (a *contextAddCommand) Run(app *program.App, c *client, parsed *kong.Context) error {
	if err := checkContextName(a.Name); err != nil {
		return err
	}
	at, err := ownContexts()
	if err != nil {
		return err
	}
	settings := map[string]string{}
	for _, given := range parsed.Path {
		if given.Flag == nil || given.Resolved {
			continue
		}
		isFile, ok := contextFlags[given.Flag.Name]
		if !ok {
			if given.Flag.Name == "output" || given.Flag.Name == "context" {
				continue
			}
			return program.Usagef("--%s is not kept in a context", given.Flag.Name)
		}
		value := fmt.Sprint(given.Flag.Target.Interface())
		if isFile {
			if value, err = filepath.Abs(value); err != nil {
				return err
			}
		}
		settings[given.Flag.Name] = value
	}
	if len(settings) == 0 {
		return program.Usagef("give the servers of the context, such as --url http://127.0.0.1:7070")
	}
	text, err := yaml.Marshal(settings)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(at.file(a.Name)), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(at.file(a.Name), text); err != nil {
		return err
	}
	return printDone(app, c, map[string]string{"context": a.Name, "file": at.file(a.Name)},
		"%s is saved; make it the current one: sluice context use %s", a.Name, a.Name)
}

type contextUseCommand struct {
	Name string `arg:"" help:"The context."`
}

func (*contextUseCommand) Help() string {
	return `Commands without --context ask the servers of the current context.

Examples:

  sluice context use prod`
}

// Run makes it the current one.
func (u *contextUseCommand) Run(app *program.App, c *client) error {
	at, err := ownContexts()
	if err != nil {
		return err
	}
	if err := at.need(u.Name); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(at.folder, "context"), []byte(u.Name+"\n")); err != nil {
		return err
	}
	return printDone(app, c, map[string]string{"current": u.Name}, "%s is the current context", u.Name)
}

type contextListCommand struct{}

func (*contextListCommand) Help() string {
	return `The current context has a star.

Examples:

  sluice context list`
}

// Run prints the contexts.
func (*contextListCommand) Run(app *program.App, c *client) error {
	at, err := ownContexts()
	if err != nil {
		return err
	}
	names, err := at.names()
	if err != nil {
		return err
	}
	current, err := at.current()
	if err != nil {
		return err
	}
	type listed struct {
		Name    string `json:"name"`
		Current bool   `json:"current"`
		File    string `json:"file"`
	}
	list, rows := make([]listed, len(names)), make([][]string, len(names))
	for i, name := range names {
		list[i] = listed{name, name == current, at.file(name)}
		rows[i] = []string{"", name, list[i].File}
		if list[i].Current {
			rows[i][0] = "*"
		}
	}
	if c.Output.isDocument() {
		return c.Output.write(app.Stdout, map[string]any{"contexts": list})
	}
	return newSheet(app.Stdout, app.Stdout, c.Output).table([]string{"", "CONTEXT"}, []string{"FILE"}, rows)
}

type contextShowCommand struct {
	Name string `arg:"" optional:"" help:"The context (default: the current one)."`
}

func (*contextShowCommand) Help() string {
	return `Examples:

  sluice context show
  sluice context show prod`
}

// Run prints the file.
func (s *contextShowCommand) Run(app *program.App, c *client) error {
	at, err := ownContexts()
	if err != nil {
		return err
	}
	if s.Name == "" {
		if s.Name, err = at.current(); err != nil {
			return err
		}
		if s.Name == "" {
			return wire.Errorf(wire.NotFound, "there is no current context: sluice context use NAME")
		}
	}
	if err := at.need(s.Name); err != nil {
		return err
	}
	text, err := os.ReadFile(at.file(s.Name))
	if err != nil {
		return err
	}
	if !c.Output.isDocument() {
		_, err = app.Stdout.Write(text)
		return err
	}
	var settings map[string]any
	if err := yaml.Unmarshal(text, &settings); err != nil {
		return fmt.Errorf("%s: %w", at.file(s.Name), err)
	}
	return c.Output.write(app.Stdout, settings)
}

type contextRemoveCommand struct {
	Name string `arg:"" help:"The context."`
	Yes  bool   `short:"y" help:"Do not ask before it is done."`
}

func (*contextRemoveCommand) Help() string {
	return `At a terminal it asks first; elsewhere it needs --yes.

Examples:

  sluice context remove staging --yes`
}

// Run removes it, and forgets that it is the current one.
func (r *contextRemoveCommand) Run(ctx context.Context, app *program.App, c *client) error {
	at, err := ownContexts()
	if err != nil {
		return err
	}
	if err := at.need(r.Name); err != nil {
		return err
	}
	if err := asked(ctx, app, r.Yes, "Remove the context %s?", r.Name); err != nil {
		return err
	}
	current, err := at.current()
	if err == nil && current == r.Name {
		err = atomicfile.Remove(filepath.Join(at.folder, "context"))
	}
	if err = errors.Join(err, atomicfile.Remove(at.file(r.Name))); err != nil {
		return err
	}
	return printDone(app, c, map[string]string{"removed": r.Name}, "%s is removed", r.Name)
}
