package program

import (
	"bytes"
	"context"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPrecedence(t *testing.T) {
	const (
		flag = "--listen=flag:1"
		env  = "SLUICE_LISTEN=env:1"
		file = "listen: file:1\n"
	)
	for name, test := range map[string]struct {
		args []string
		env  []string
		file string
		want string
	}{
		"default":                           {want: "127.0.0.1:7070"},
		"file over default":                 {file: file, want: "file:1"},
		"env over default":                  {env: []string{env}, want: "env:1"},
		"flag over default":                 {args: []string{flag}, want: "flag:1"},
		"env over file":                     {env: []string{env}, file: file, want: "env:1"},
		"flag over file":                    {args: []string{flag}, file: file, want: "flag:1"},
		"flag over env":                     {args: []string{flag}, env: []string{env}, want: "flag:1"},
		"flag over env and file":            {args: []string{flag}, env: []string{env}, file: file, want: "flag:1"},
		"an empty variable is not given":    {env: []string{"SLUICE_LISTEN="}, file: file, want: "file:1"},
		"an empty flag is given":            {args: []string{"--listen="}, env: []string{env}, file: file, want: ""},
		"an empty text in the file is, too": {file: "listen: \"\"\n", want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := start(t, test.env, test.file, test.args...)
			wantRan(t, got)
			if got.settings.Listen != test.want {
				t.Errorf("listen = %q, want %q", got.settings.Listen, test.want)
			}
		})
	}
}

// The common flags follow the same rule, and so does the flag that names the file.
func TestPrecedenceOfCommonFlags(t *testing.T) {
	got := start(t, []string{"SLUICE_LOG_LEVEL=loud"}, "log-level: error\n")
	wantRefused(t, got, `SLUICE_LOG_LEVEL: log-level: must be one of debug, info, warn, error, not "loud"`)

	path := writeFile(t, "limit: 11\n")
	got = start(t, []string{"SLUICE_CONFIG=" + path}, "")
	wantRan(t, got)
	if got.settings.Limit != 11 {
		t.Errorf("SLUICE_CONFIG: limit = %d, want the file's 11", got.settings.Limit)
	}
	got = start(t, []string{"SLUICE_CONFIG=absent.yaml"}, "", "--config", path)
	wantRan(t, got)
	if got.settings.Limit != 11 {
		t.Errorf("--config over SLUICE_CONFIG: limit = %d, want 11", got.settings.Limit)
	}
	got = start(t, []string{"SLUICE_CONFIG=absent.yaml"}, "")
	wantRefused(t, got, "--config: open absent.yaml: no such file or directory")
}

func TestEveryKindFromEverySource(t *testing.T) {
	want := serverSettings{
		Listen: "unix:/s", DataDir: "/d", Limit: 9, Ratio: 0.25, Wait: 1500 * time.Millisecond, Insecure: true,
		Durable: false, Mode: "fast", Peers: []string{"a:1", "b:2"}, Sizes: []int{1, 2}, Header: []string{"x=1,2"},
		Labels: map[string]string{"zone": "eu"},
	}
	for name, got := range map[string]outcome{
		"flags": start(t, nil, "", "--listen=unix:/s", "--data-dir=/d", "--limit=9", "--ratio=0.25", "--wait=1.5s",
			"--insecure", "--no-durable", "--mode=fast", "--peers=a:1,b:2", "--sizes=1,2", "--header=x=1,2", "--labels=zone=eu"),
		"environment": start(t, []string{"SLUICE_LISTEN=unix:/s", "SLUICE_DATA_DIR=/d", "SLUICE_LIMIT=9",
			"SLUICE_RATIO=0.25", "SLUICE_WAIT=1.5s", "SLUICE_INSECURE=true", "SLUICE_DURABLE=false", "SLUICE_MODE=fast",
			"SLUICE_PEERS=a:1,b:2", "SLUICE_SIZES=1,2", "SLUICE_HEADER=x=1,2", "SLUICE_LABELS=zone=eu"}, ""),
		"file": start(t, nil, `
# a comment
listen: unix:/s
data-dir: "/d"
limit: 9
ratio: 0.25
wait: 1.5s
insecure: true
durable: false
mode: fast
peers: [a:1, b:2]
sizes:
  - 1
  - 2
header: ["x=1,2"]
labels: {zone: eu}
`),
		"file, lists as text": start(t, nil, `
{listen: "unix:/s", data-dir: /d, limit: "9", ratio: 0.25, wait: 1.5s, insecure: "yes", durable: no, mode: fast,
 peers: "a:1,b:2", sizes: "1,2", header: "x=1,2", labels: zone=eu}`),
	} {
		t.Run(name, func(t *testing.T) {
			wantRan(t, got)
			if !reflect.DeepEqual(got.settings, want) {
				t.Errorf("settings\n got %+v\nwant %+v", got.settings, want)
			}
		})
	}
}

func TestEnvironmentErrorsNameTheVariable(t *testing.T) {
	wantRefused(t, start(t, []string{"SLUICE_LIMIT=many"}, ""),
		`SLUICE_LIMIT: limit: expected a valid 64 bit int but got "many"`)
	wantRefused(t, start(t, []string{"SLUICE_MODE=slow"}, ""),
		`SLUICE_MODE: mode: must be one of fast, safe, not "slow"`)
}

func TestAskingFlagsAreNotSettings(t *testing.T) {
	wantRan(t, start(t, []string{"SLUICE_VERSION=1.2.3", "SLUICE_HELP=1"}, ""))
}

// TestListsOfURLs: the URL of several servers has commas in it, so that a list of such has no
// separator where each element has a flag or a line of its own, and spaces in the environment.
func TestListsOfURLs(t *testing.T) {
	const one, two = "mongodb://a,b,c/db?replicaSet=rs0#outbox", "mongodb://d:1,e:2/db#other"
	for name, test := range map[string]struct {
		got  outcome
		want []string
	}{
		"flag":             {start(t, nil, "", "--header", one), []string{one}},
		"flags":            {start(t, nil, "", "--header", one, "--header="+two), []string{one, two}},
		"environment":      {start(t, []string{"SLUICE_HEADER=" + one}, ""), []string{one}},
		"environment, two": {start(t, []string{"SLUICE_HEADER= " + one + "\n" + two + " "}, ""), []string{one, two}},
		"only spaces":      {start(t, []string{"SLUICE_HEADER= "}, ""), nil},
		"file":             {start(t, nil, "header: "+one+"\n"), []string{one}},
		"file, a list":     {start(t, nil, "header:\n- "+one+"\n- "+two+"\n"), []string{one, two}},
	} {
		t.Run(name, func(t *testing.T) {
			wantRan(t, test.got)
			if !slices.Equal(test.got.settings.Header, test.want) {
				t.Errorf("header = %q, want %q", test.got.settings.Header, test.want)
			}
		})
	}
}

// Every number below its minimum is named, wherever it comes from.
func TestMinimums(t *testing.T) {
	type settings struct {
		Most  int           `min:"1" default:"5"`
		Pause time.Duration `min:"1s" default:"1m"`
		Rate  int64         `min:"0" default:"0"`
	}
	run := func(args ...string) (status int, says string) {
		var s settings
		var stderr bytes.Buffer
		status = Run(Spec{Name: "p", Settings: &s, Run: func(context.Context, *App) error { return nil }}, Process{
			Args: args, Stdout: io.Discard, Stderr: &stderr,
			LookupEnv: func(name string) (string, bool) {
				if name == "SLUICE_PAUSE" {
					return "999ms", true
				}
				return "", false
			},
		})
		return status, stderr.String()
	}
	const want = "most: must be at least 1, not 0; pause: must be at least 1s, not 999ms; rate: must be at least 0, not -1"
	if status, says := run("--most=0", "--rate=-1"); status != StatusUsage || !strings.Contains(says, want) {
		t.Errorf("status %d: %s", status, says)
	}
	if status, says := run("--most=1", "--pause=1s"); status != StatusOK {
		t.Errorf("status %d: %s", status, says)
	}
	var s settings
	if Defaults(&s); s.Most != 5 || s.Pause != time.Minute || s.Rate != 0 {
		t.Errorf("the defaults are %+v", s)
	}
}
