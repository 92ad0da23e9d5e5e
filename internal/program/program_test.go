package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

func TestHelp(t *testing.T) {
	got := start(t, []string{"XDG_DATA_HOME=/d"}, "", "--help")
	if got.ran || got.status != StatusOK || got.stderr != "" {
		t.Errorf("ran %v, status %d, stderr %q", got.ran, got.status, got.stderr)
	}
	for _, part := range []string{
		"Usage: sluice-test", "A program for tests.",
		"(default: 127.0.0.1:7070)", "(default: /d/sluice/sluice-test)", "--data-dir=DIR", "--wait=DURATION",
		"--config=FILE.yaml", "--log-format=FORMAT", "SLUICE_",
		"Examples:\n  sluice-test --listen 127.0.0.1:0\n  sluice-test --config sluice.yaml\n",
	} {
		if !strings.Contains(got.stdout, part) {
			t.Errorf("help lacks %q", part)
		}
	}
	for line := range strings.Lines(got.stdout) {
		if len(line) > helpWidth+len("\n") {
			t.Errorf("wider than %d columns: %q", helpWidth, line)
		}
	}
	if t.Failed() {
		t.Log(got.stdout)
	}
}

// A user who asks for help may do so because something is wrong.
func TestHelpDespiteWrongSettings(t *testing.T) {
	got := start(t, []string{"SLUICE_LIMIT=many"}, "listn: x\n", "--help")
	if got.status != StatusOK || got.stderr != "" || !strings.Contains(got.stdout, "Usage:") {
		t.Errorf("status %d, stderr %q", got.status, got.stderr)
	}
}

func TestVersion(t *testing.T) {
	version = "v1.2.3"
	defer func() { version = "" }()
	got := start(t, nil, "", "--version")
	if got.ran || got.status != StatusOK || !strings.HasPrefix(got.stdout, "sluice-test v1.2.3 (go1.") ||
		strings.Count(got.stdout, "\n") != 1 {
		t.Errorf("ran %v, status %d, stdout %q", got.ran, got.status, got.stdout)
	}
}

func TestUsageErrors(t *testing.T) {
	wantRefused(t, start(t, nil, "", "--listn=x"), `unknown flag --listn, did you mean "--listen"?`)
	wantRefused(t, start(t, nil, "", "--limit=many"), `--limit: expected a valid 64 bit int but got "many"`)
	wantRefused(t, start(t, nil, "", "--log-format=xml"), `--log-format must be one of "text","json" but got "xml"`)
	wantRefused(t, start(t, nil, "", "stray"), `unexpected argument stray`)
}

// run runs a program without settings whose work is the given function.
func run(work func(context.Context, *App) error, signals <-chan os.Signal, args ...string) (status int, stderr string) {
	var out bytes.Buffer
	status = Run(Spec{Name: "sluice-test", Settings: new(struct{}), Run: work},
		Process{Args: args, LookupEnv: lookup(nil), Stdout: &out, Stderr: &out, Signals: signals})
	return status, out.String()
}

func TestExitStatuses(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status int
		stderr string
	}{
		"done":           {nil, StatusOK, ""},
		"failure":        {errors.New("disk full"), StatusFailure, "sluice-test: disk full\n"},
		"usage":          {Usagef("--listen %s: no", ":1"), StatusUsage, "sluice-test: --listen :1: no\n"},
		"usage, wrapped": {fmt.Errorf("start: %w", Usagef("no")), StatusUsage, "sluice-test: start: no\n"},
		"silent":         {Silent(1), 1, ""},
		"several":        {errors.Join(errors.New("a"), errors.New("b")), StatusFailure, "sluice-test: a; b\n"},
		"canceled by itself": {fmt.Errorf("read: %w", context.Canceled), StatusFailure,
			"sluice-test: read: context canceled\n"},
	} {
		t.Run(name, func(t *testing.T) {
			status, stderr := run(func(context.Context, *App) error { return test.err }, nil)
			if status != test.status || stderr != test.stderr {
				t.Errorf("status %d, stderr %q, want %d, %q", status, stderr, test.status, test.stderr)
			}
		})
	}
}

func TestFirstSignalDrains(t *testing.T) {
	signals := make(chan os.Signal, 1)
	status, stderr := run(func(ctx context.Context, _ *App) error {
		signals <- syscall.SIGTERM
		<-ctx.Done()
		return nil
	}, signals)
	if status != StatusOK || stderr != "" {
		t.Errorf("status %d, stderr %q, want a clean end", status, stderr)
	}
}

func TestSignalThatCutsWorkShort(t *testing.T) {
	signals := make(chan os.Signal, 1)
	status, stderr := run(func(ctx context.Context, _ *App) error {
		signals <- os.Interrupt
		<-ctx.Done()
		return fmt.Errorf("export: %w", ctx.Err())
	}, signals)
	if want := "sluice-test: interrupted before it was done (interrupt)\n"; status != 130 || stderr != want {
		t.Errorf("status %d, stderr %q, want 130, %q", status, stderr, want)
	}
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	signals := make(chan os.Signal, 2)
	stuck, left := make(chan struct{}), make(chan struct{})
	status, stderr := run(func(ctx context.Context, _ *App) error {
		defer close(left)
		signals <- os.Interrupt
		<-ctx.Done()
		signals <- syscall.SIGTERM
		<-stuck
		return nil
	}, signals)
	close(stuck)
	<-left
	if want := "sluice-test: stopped at once by a second signal (terminated)\n"; status != 143 || stderr != want {
		t.Errorf("status %d, stderr %q, want 143, %q", status, stderr, want)
	}
}

// client is a program with commands, as the command line client is.
type client struct {
	Server string   `default:"127.0.0.1:7070" help:"Where the sidecar listens."`
	Pub    pubFlags `cmd:"" help:"Publish."`
	Sub    subFlags `cmd:"" help:"Subscribe."`
	Topics struct {
		List   struct{ subFlags } `cmd:"" default:"withargs" help:"List."`
		Delete subFlags           `cmd:"" help:"Delete."`
	} `cmd:"" help:"Topics."`
}

type pubFlags struct {
	Topic string `arg:"" help:"The topic."`
	Key   string `help:"The key."`
}

func (p *pubFlags) Run(ctx context.Context, app *App, all *client) error {
	_, err := fmt.Fprintf(app.Stdout, "pub %s key=%s server=%s done=%v\n", p.Topic, p.Key, all.Server, ctx.Err() != nil)
	return err
}

type subFlags struct {
	Topic string `arg:"" help:"The topic."`
	Max   int    `help:"How many."`
}

func (s *subFlags) Run(app *App) error {
	_, err := fmt.Fprintf(app.Stdout, "sub %s max=%d\n", s.Topic, s.Max)
	return err
}

func TestCommands(t *testing.T) {
	for name, test := range map[string]struct {
		args           []string
		file           string
		status         int
		stdout, stderr string
	}{
		"flags and argument": {args: []string{"pub", "orders", "--key=k", "--server=s"},
			stdout: "pub orders key=k server=s done=false\n"},
		"environment": {args: []string{"sub", "orders"}, stdout: "sub orders max=3\n"},
		"one file for all commands": {args: []string{"pub", "orders"}, file: "key: k\nmax: 4\nserver: s\n",
			stdout: "pub orders key=k server=s done=false\n"},
		"environment over file": {args: []string{"sub", "orders"}, file: "max: 4\n", stdout: "sub orders max=3\n"},
		"argument missing":      {args: []string{"pub"}, status: 2, stderr: "sluice: expected \"<topic>\"\n"},
		"command missing":       {status: 2, stderr: "sluice: expected one of \"pub\", \"sub\", \"topics\"\n"},
		"command unknown": {args: []string{"pubb"}, status: 2,
			stderr: "sluice: unexpected argument pubb, did you mean one of \"pub\", \"sub\"?\n"},
		"command unknown beside a default": {args: []string{"topics", "delte", "t"}, status: 2,
			stderr: "sluice: unexpected argument t (did you mean \"delete\"?)\n"},
		"another command's flag": {args: []string{"sub", "o", "--key=k"}, status: 2, stderr: "sluice: unknown flag --key\n"},
	} {
		t.Run(name, func(t *testing.T) {
			args := test.args
			if test.file != "" {
				args = append(args, "--config", writeFile(t, test.file))
			}
			var stdout, stderr bytes.Buffer
			status := Run(Spec{Name: "sluice", Settings: new(client)}, Process{
				Args: args, LookupEnv: lookup([]string{"SLUICE_MAX=3"}), Stdout: &stdout, Stderr: &stderr,
			})
			if status != test.status || stdout.String() != test.stdout || stderr.String() != test.stderr {
				t.Errorf("status %d, stdout %q, stderr %q", status, &stdout, &stderr)
			}
		})
	}
}

func TestHelpOfACommand(t *testing.T) {
	var stdout bytes.Buffer
	status := Run(Spec{Name: "sluice", Settings: new(client), Examples: "sluice pub orders"}, Process{
		Args: []string{"pub", "--help"}, LookupEnv: lookup(nil), Stdout: &stdout, Stderr: &stdout,
	})
	help := stdout.String()
	if status != StatusOK || !strings.Contains(help, "Usage: sluice pub <topic>") || strings.Contains(help, "Examples:") {
		t.Errorf("status %d\n%s", status, help)
	}
}

func TestLogger(t *testing.T) {
	speak := func(_ context.Context, app *App) error {
		app.Logger.Info("quiet")
		app.Logger.Warn("loud", "topic", "orders")
		return nil
	}
	if _, log := run(speak, nil); !strings.Contains(log, "msg=quiet") || !strings.Contains(log, "topic=orders") {
		t.Errorf("text log = %q", log)
	}
	_, log := run(speak, nil, "--log-format=json", "--log-level=warn")
	var record struct{ Msg, Topic string }
	if err := json.Unmarshal([]byte(log), &record); err != nil || record.Msg != "loud" || record.Topic != "orders" {
		t.Errorf("json log = %q (%v), want the warning alone", log, err)
	}
}

func TestReady(t *testing.T) {
	var out, log bytes.Buffer
	app := App{Name: "p", Version: "v1", Logger: slog.New(slog.NewTextHandler(&log, nil)), Stdout: &out}
	err := app.Ready(Field{"listen", "127.0.0.1:7070"}, Field{"replay", `unix:/a"b`}, Field{"ops", "[::1]:1"})
	want := `{"ready":true,"listen":"127.0.0.1:7070","replay":"unix:/a\"b","ops":"[::1]:1"}` + "\n"
	if err != nil || out.String() != want {
		t.Errorf("ready = %q, %v, want %q", &out, err, want)
	}
	if line := log.String(); !strings.Contains(line, `msg=ready program=p version=v1 listen=127.0.0.1:7070`) {
		t.Errorf("log: %s", line)
	}
}

// TestReadyIsSentToSystemd expects the message of sd_notify(3), and that a program serves without the socket, too.
func TestReadyIsSentToSystemd(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify") // the path of a socket is short
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "socket")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer manager.Close()
	ready := Spec{Name: "p", Settings: new(struct{}), Run: func(_ context.Context, app *App) error { return app.Ready() }}
	for _, path := range []string{socket, socket + "-gone"} {
		var log bytes.Buffer
		process := Process{LookupEnv: lookup([]string{"NOTIFY_SOCKET=" + path}), Stdout: io.Discard, Stderr: &log}
		if status := Run(ready, process); status != StatusOK || strings.Contains(log.String(), "cannot tell systemd") != (path != socket) {
			t.Errorf("status %d: %s", status, &log)
		}
	}
	message := make([]byte, 100)
	if n, err := manager.Read(message); err != nil || string(message[:n]) != "READY=1" {
		t.Errorf("systemd gets %q, %v", message[:n], err)
	}
}

// What repeats is left out until the end, and what a library logs is a line like others.
func TestLog(t *testing.T) {
	status, lines := run(func(_ context.Context, app *App) error {
		for range 100 {
			app.Logger.Warn("away")
		}
		log.Print("from a library")
		return nil
	}, nil)
	want := []string{`level=WARN msg=away`, `level=INFO msg="from a library"`, `level=WARN msg=away left_out=98`}
	got := strings.Split(strings.TrimSpace(lines), "\n")
	ok := status == StatusOK && len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.HasSuffix(got[i], want[i])
	}
	if !ok {
		t.Errorf("status %d, log:\n%s", status, lines)
	}
}

func TestDataDir(t *testing.T) {
	for name, test := range map[string]struct {
		env  []string
		want string
	}{
		"XDG":          {[]string{"XDG_DATA_HOME=/x", "HOME=/h"}, "/x/sluice/p"},
		"home":         {[]string{"HOME=/h"}, "/h/.local/share/sluice/p"},
		"empty XDG":    {[]string{"XDG_DATA_HOME=", "HOME=/h"}, "/h/.local/share/sluice/p"},
		"relative XDG": {[]string{"XDG_DATA_HOME=x", "HOME=/h"}, "/h/.local/share/sluice/p"},
	} {
		if got := dataDir(lookup(test.env), "p"); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if got := dataDir(lookup(nil), "p"); got != "" && !strings.HasSuffix(got, "/.local/share/sluice/p") {
		t.Errorf("without HOME: %q", got)
	}
}

// A secret that is given as a flag works, with a warning that does not repeat it; from elsewhere
// there is none to give.
func TestSecretsOnTheCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args []string
		env  string
		warn bool
	}{
		{[]string{"--token", "geheim"}, "", true},
		{[]string{"--token=geheim"}, "", true},
		{nil, "geheim", false},
		{[]string{"--store", "mongodb://u:geheim@db/x"}, "", true},
		{[]string{"--store", "mongodb://db/x"}, "", false},
		{nil, "", false},
	} {
		var s struct {
			Token string `secret:"--token-file"`
			Store string `secret:""`
		}
		var stderr bytes.Buffer
		status := Run(Spec{Name: "p", Settings: &s, Run: func(context.Context, *App) error { return nil }}, Process{
			Args: tc.args, Stdout: io.Discard, Stderr: &stderr,
			LookupEnv: func(name string) (string, bool) {
				if name == "SLUICE_TOKEN" && tc.env != "" {
					return tc.env, true
				}
				return "", false
			},
		})
		warned := strings.Contains(stderr.String(), "level=WARN") &&
			(strings.Contains(stderr.String(), "--token-file") || strings.Contains(stderr.String(), "store in --config"))
		if status != StatusOK || warned != tc.warn || strings.Contains(stderr.String(), "geheim") {
			t.Errorf("%q, %q: status %d, %s", tc.args, tc.env, status, &stderr)
		}
	}
}
