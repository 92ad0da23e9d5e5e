package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/sluice-bus/sluice/internal/logging"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

// The exit statuses. A program stopped by a signal before its work was done, or by a second signal
// while it was stopping, exits with 128 + the signal's number, as a shell would report it.
const (
	StatusOK      = 0
	StatusFailure = 1
	// StatusUsage is for mistakes in the flags, the environment or the file.
	StatusUsage = 2
)

// A Spec describes one program.
type Spec struct {
	// Name is the program's file name, which also starts each of its error lines and names its data
	// folder.
	Name string
	// Description is one or two sentences for --help.
	Description string
	// Examples is printed by --help under "Examples:", as it is. Lines fit in 78 columns.
	Examples string
	// Settings points to the struct, with kong's tags, that the settings are put into. Its tags may
	// use ${data_dir}, the default data folder, and ${host}, this machine's name. min:"N" is the
	// least value of a number or a duration. A flag that holds a secret is tagged secret:"INSTEAD",
	// with what to use in its place (by default the environment or the file): the flag works, with
	// a warning, since the list of processes shows it. The flags --config, --log-format,
	// --log-level, --schema, --version and --help are added to it.
	Settings any
	// Schemas make the JSON Schemas of the files that flags name, by the names of the flags. That of
	// --config is made of Settings.
	Schemas map[string]func() map[string]any
	// ConfigFile returns the file of settings for a process that names none with --config; value returns what the command line,
	// or else the environment, gives a flag. nil, or "": there is none.
	ConfigFile func(value func(flag string) string) (path string, err error)
	// Run does the work. Its context ends with the first SIGINT or SIGTERM; it then stops in order
	// and returns nil. Where it is nil, the method Run(context.Context, *App) error of the command
	// that was given is called.
	Run func(ctx context.Context, app *App) error
	// Server says that the program goes on when its terminal is closed (SIGHUP, which it gets as App.Hangups), and when nobody reads
	// its output any more (SIGPIPE): lines of the log are then lost, and nothing else.
	Server bool
	// Status returns the exit status for an error of Run that is none of the settings; nil: StatusFailure for every error.
	Status func(error) int
}

// An App is what a running program has of its process.
type App struct {
	// Name and Version are as --version prints them.
	Name, Version string
	// Logger writes to Stderr, as --log-format and --log-level say, and leaves out repetitions.
	Logger *slog.Logger
	// Recent has the last lines of level warn and above.
	Recent         *logging.Recent
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Hangups delivers each SIGHUP, which asks a server to read its files again; nil: the program is none.
	Hangups <-chan os.Signal

	notifySocket string // of systemd; "": it does not wait for this program
}

// A Process is what a program is given by its operating system, so that tests can give it something
// else.
type Process struct {
	// Args are the arguments, without the program's name.
	Args []string
	// LookupEnv is os.LookupEnv.
	LookupEnv      func(name string) (value string, ok bool)
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Signals delivers the signals that end the program, and Hangups those that ask a server to read its files again.
	Signals, Hangups <-chan os.Signal
}

// commonFlags are what every program has beside its own settings.
type commonFlags struct {
	Config    string           `group:"common" placeholder:"FILE.yaml" help:"Read settings from this file."`
	LogFormat string           `group:"common" enum:"text,json" default:"text" help:"How to log to standard error: text or json."`
	LogLevel  string           `group:"common" enum:"debug,info,warn,error" default:"info" help:"What to log: debug, info, warn or error."`
	Schema    schemaFlag       `group:"common" placeholder:"FLAG" help:"Print the JSON Schema of the file given with that flag, such as config, and exit."`
	Man       manFlag          `hidden:"" help:"Print the manual page and exit."`
	Version   kong.VersionFlag `group:"common" help:"Print the version and exit."`
}

// Main runs the program that spec describes in this process and exits with its status. It does not
// return.
func Main(spec Spec) {
	// Room for the two that have a meaning; signal.Notify drops what finds no room.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var hangups chan os.Signal
	if spec.Server {
		hangups = make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		signal.Ignore(syscall.SIGPIPE)
	}
	os.Exit(Run(spec, Process{
		Args:      os.Args[1:],
		LookupEnv: os.LookupEnv,
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		Signals:   signals,
		Hangups:   hangups,
	}))
}

// Run runs the program that spec describes in the given process and returns its exit status. An
// error is one line on process.Stderr. A spec that kong cannot use is a defect of the program, and
// panics.
func Run(spec Spec, process Process) int {
	process.Stdout, process.Stderr = terminal.Shield(process.Stdout), terminal.Shield(process.Stderr)
	command, common, err := parse(spec, process)
	if err != nil {
		return report(spec.Name, process.Stderr, err)
	}
	if command == nil {
		return StatusOK // --help or --version has answered
	}
	logger, recent, flush := newLogger(process.Stderr, common.LogFormat, common.LogLevel)
	defer flush()
	slog.SetDefault(logger) // what libraries log goes there, too
	app := &App{
		Name:    spec.Name,
		Version: Version(),
		Logger:  logger,
		Recent:  recent,
		Stdin:   process.Stdin,
		Stdout:  process.Stdout,
		Stderr:  process.Stderr,
		Hangups: process.Hangups,
	}
	app.notifySocket, _ = process.LookupEnv("NOTIFY_SOCKET")
	warnOfShown(app.Logger, command)
	run := spec.Run
	if run == nil {
		run = func(ctx context.Context, app *App) error {
			command.BindTo(ctx, (*context.Context)(nil))
			return command.Run(app)
		}
	}
	err = untilSignal(process.Signals, func(ctx context.Context) error { return run(ctx, app) })
	status := report(spec.Name, process.Stderr, err)
	if status == StatusFailure && spec.Status != nil {
		status = spec.Status(err)
	}
	return status
}

// warnOfShown tells of secrets that are given as flags. A URL is a secret if it has a password.
func warnOfShown(log *slog.Logger, command *kong.Context) {
	for _, at := range command.Path {
		if at.Flag == nil || at.Resolved || !at.Flag.Tag.Has("secret") {
			continue
		}
		name := at.Flag.Name
		if value := fmt.Sprint(at.Flag.Target.Interface()); !strings.Contains(value, "://") || strings.Contains(value, "@") {
			log.Warn("a token or password on the command line is shown to every user of this machine by the list of processes",
				"flag", "--"+name, "instead", cmp.Or(at.Flag.Tag.Get("secret"), envName(name)+", or "+name+" in --config"))
		}
	}
}

// parse fills the settings. The command is nil when the arguments only asked for something to be
// printed.
func parse(spec Spec, process Process) (*kong.Context, *commonFlags, error) {
	var common commonFlags
	printed := false
	parser := newParser(spec, process, &common, func(int) { printed = true })
	command, err := parser.Parse(process.Args)
	if printed {
		return nil, nil, nil
	}
	if err != nil {
		// kong puts the flag's name before what a resolver says; a settingError names it by itself.
		if wrong, ok := errors.AsType[*settingError](err); ok {
			err = wrong
		}
		return nil, nil, Usagef("%w%s", err, misspelt(err, process.Args))
	}
	if err := checkMinimums(command); err != nil {
		return nil, nil, Usagef("%w", err)
	}
	return command, &common, nil
}

// misspelt names the command that was meant where the word behind one was taken for an argument of its default command.
func misspelt(err error, args []string) string {
	wrong, ok := errors.AsType[*kong.ParseError](err)
	if !ok || wrong.Context == nil {
		return ""
	}
	node := wrong.Context.Selected()
	if node == nil || node.Parent == nil || node.Parent.DefaultCmd != node {
		return ""
	}
	var names []string
	for _, command := range node.Parent.Children {
		names = append(names, command.Name)
	}
	at := slices.Index(args, node.Parent.Name) + 1
	if at == 0 || at == len(args) || slices.Contains(names, args[at]) {
		return ""
	}
	return nearest.Hint(args[at], names)
}

// newParser makes the parser of the command line. exit is called where it has printed help or a version.
func newParser(spec Spec, process Process, common *commonFlags, exit func(int)) *kong.Kong {
	parser, err := kong.New(spec.Settings, append(helpOptions(spec.Examples),
		kong.Name(spec.Name),
		kong.Description(spec.Description),
		kong.Embed(common),
		kong.Bind(spec),
		kong.Resolvers(&settings{lookupEnv: process.LookupEnv, configFile: spec.ConfigFile}),
		vars(process.LookupEnv, spec.Name),
		kong.Writers(process.Stdout, process.Stderr),
		// kong ends the process where it prints help or version. Instead the parse goes on, and its
		// result is ignored.
		kong.Exit(exit),
	)...)
	if err != nil {
		panic(fmt.Sprintf("%s: unusable settings: %v", spec.Name, err))
	}
	return parser
}

// vars are what tags of settings may use.
func vars(lookupEnv func(string) (string, bool), program string) kong.Vars {
	host, _ := os.Hostname() // "" is refused where a name is needed
	return kong.Vars{"version": versionLine(program), "data_dir": dataDir(lookupEnv, program), "host": host}
}

// Defaults fills in the defaults that the tags of a struct of settings have, where a field is zero,
// except for folders and names of the machine. It panics if kong cannot use the struct, which is a defect of the program.
func Defaults(settings any) {
	parser, err := kong.New(settings, kong.Vars{"data_dir": "", "host": ""})
	if err != nil {
		panic(fmt.Sprintf("unusable settings: %v", err))
	}
	command, err := kong.Trace(parser, nil)
	if err = errors.Join(err, command.ApplyDefaults()); err != nil {
		panic(fmt.Sprintf("unusable settings: %v", err))
	}
}

// recentLines is how many lines of the log are kept.
const recentLines = 100

// newLogger makes the program's logger. flush writes what it has held back.
func newLogger(w io.Writer, format, level string) (_ *slog.Logger, recent *logging.Recent, flush func()) {
	var minimum slog.Level
	if err := minimum.UnmarshalText([]byte(level)); err != nil {
		panic(err) // commonFlags allows only levels that slog knows
	}
	options := &slog.HandlerOptions{Level: minimum}
	var lines slog.Handler = slog.NewTextHandler(w, options)
	if format == "json" {
		lines = slog.NewJSONHandler(w, options)
	}
	lines, recent = logging.Keep(lines, recentLines)
	lines, flush = logging.Throttle(lines)
	return slog.New(lines), recent, flush
}

// exitError is an error that ends the program with a status of its own.
type exitError struct {
	status int
	cause  error
}

func (e *exitError) Error() string { return e.cause.Error() }
func (e *exitError) Unwrap() error { return e.cause }

// Usagef makes an error, formatted as by fmt.Errorf, that ends the program with StatusUsage: for
// settings that are wrong, or that do not go together.
func Usagef(format string, args ...any) error {
	return &exitError{status: StatusUsage, cause: fmt.Errorf(format, args...)}
}

// Silent makes an error that ends the program with the status and prints nothing: for programs
// whose status is an answer, as diff's is.
func Silent(status int) error { return &exitError{status: status, cause: errSilent} }

var errSilent = errors.New("the status says it all")

// report prints err, if there is one, on one line, and returns the exit status that belongs to it:
// a wrong setting's is StatusUsage.
func report(name string, stderr io.Writer, err error) int {
	if err == nil {
		return StatusOK
	}
	exit, ok := errors.AsType[*exitError](err)
	if ok && exit.cause == errSilent {
		return exit.status
	}
	// errors.Join puts each of its errors on a line.
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	fmt.Fprintf(stderr, "%s: %s\n", name, strings.Join(lines, "; "))
	if ok {
		return exit.status
	}
	if _, wrong := errors.AsType[*setting.Error](err); wrong {
		return StatusUsage
	}
	return StatusFailure
}
