package contract

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// "Every program: --help; --version". Both succeed and say it on stdout.
func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	out, _, status := testkit.SidecarProgram.Launch(t, nil, "--help").Ended(t)
	for _, flag := range []string{
		"--listen", "--replay-listen", "--ops-listen", "--data-dir", "--store", "--node-id", "--control-plane", "--policies", "--allowed-origins",
		"--insecure", "--auth-config", "--peers", "--config", "--log-format", "--log-level", "--version",
		"127.0.0.1:7070", "127.0.0.1:8083", "127.0.0.1:7071", "SLUICE_",
	} {
		if !strings.Contains(out, flag) {
			t.Errorf("--help does not say %s", flag)
		}
	}
	version, _, status2 := testkit.SidecarProgram.Launch(t, nil, "--version").Ended(t)
	if status != 0 || status2 != 0 || strings.TrimSpace(version) == "" {
		t.Errorf("exit status %d and %d, version %q", status, status2, version)
	}
}

// "Once ready, each program prints exactly one line to stdout: a JSON object … with the addresses
// really bound". "unix:/path" listens on a socket. "SIGTERM/SIGINT drain and exit 0." "Logs are
// structured … --log-format text|json … on stderr."
func TestReadyLine(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		dir, err := os.MkdirTemp("", "sluice") // the path of a socket must be short
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "app.sock")
		p := testkit.SidecarProgram.Launch(t, nil, "--data-dir", filepath.Join(dir, "data"), "--listen", "unix:"+path, "--replay-listen",
			"127.0.0.1:0",
			"--ops-listen", "localhost:0", "--log-format", "json", "--log-level", "debug")
		line, err := p.Stdout.ReadString('\n')
		require.NoError(t, err)
		ready := testkit.ParseObject(t, []byte(line))
		if ready["ready"] != true || len(ready) != 4 || ready["listen"] != "unix:"+path {
			t.Errorf("%s", line)
		}
		for _, name := range []string{"replay", "ops"} {
			if host, port, err := net.SplitHostPort(ready.Text(name)); err != nil || host == "" || port == "0" {
				t.Errorf("%s: %s", name, line)
			}
		}
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}
		client := &http.Client{Transport: transport}
		for _, host := range []string{"localhost", "anything"} {
			if a := testkit.CallWith(t, client, "POST", "http://"+host+"/v1/topics/t/events", "1"); a.Status != 201 {
				t.Errorf("over the socket as %s: %d %s", host, a.Status, a.Body)
			}
		}
		if a := testkit.CallWith(t, client, "POST", "http://localhost/v1/topics/t/events", "1", "Origin: http://evil.example"); a.Status != 403 {
			t.Errorf("over the socket with an Origin: %d %s", a.Status, a.Body)
		}
		transport.CloseIdleConnections()
		require.NoError(t, p.Process.Signal(signal))
		rest, log, status := p.Ended(t)
		if rest != "" || status != 0 {
			t.Errorf("%v: exit status %d, more on stdout %q\n%s", signal, status, rest, log)
		}
		for entry := range strings.Lines(log) {
			if !json.Valid([]byte(entry)) {
				t.Errorf("stderr: %s", entry)
			}
		}
	}
}

// "precedence flag > environment > file > default"; "Keys in the file are the flags' names";
// "SLUICE_ + the flag's name in capitals, dashes as underscores".
func TestPrecedence(t *testing.T) {
	dir := t.TempDir()
	file := testkit.Write(t, filepath.Join(dir, "c.yaml"), "node-id: of-the-file\nallowed-origins: [\"https://of.the.file\"]\n")
	nodeID := func(env string, args ...string) string {
		t.Helper()
		t.Setenv("SLUICE_NODE_ID", env)
		if env == "" {
			os.Unsetenv("SLUICE_NODE_ID")
		}
		s := own(t, "", args...)
		if len(args) > 0 {
			if a := testkit.Call(t, "GET", s.OpsURL()+"/healthz", "", "Origin: https://of.the.file"); a.Status != 200 {
				t.Errorf("allowed-origins of the file: %d", a.Status)
			}
		}
		return testkit.ParseObject(t, testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "").Body).Text("node_id")
	}
	if id := nodeID(""); id == "" || strings.HasPrefix(id, "of-") {
		t.Errorf("default: %q", id)
	}
	if id := nodeID("", "--config", file); id != "of-the-file" {
		t.Errorf("file: %q", id)
	}
	if id := nodeID("of-the-environment", "--config", file); id != "of-the-environment" {
		t.Errorf("environment: %q", id)
	}
	if id := nodeID("of-the-environment", "--config", file, "--node-id", "of-the-flag"); id != "of-the-flag" {
		t.Errorf("flag: %q", id)
	}
}

// "an unknown key in the file is an error that names the key and its line"; "A listener that is not
// loopback refuses to start without --auth-config (exit status 2, saying why) unless --insecure is
// given"; issue 2: the sidecar refuses settings that it does not support yet with exit status 2.
func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		env  []string
		says []string
	}{
		{[]string{"--config", testkit.Write(t, dir+"/c.yaml", "node-id: n\n\nlog_level: debug\n")}, nil, []string{"log_level", "3"}},
		{[]string{"--config", testkit.Write(t, dir+"/d.yaml", "node-id: [\n")}, nil, []string{"d.yaml"}},
		{[]string{"--config", dir + "/none.yaml"}, nil, []string{"none.yaml"}},
		{[]string{"--listen", "0.0.0.0:0"}, nil, []string{"listen", "--insecure"}},
		{[]string{"--ops-listen", "[::]:0"}, nil, []string{"ops-listen", "--insecure"}},
		{nil, []string{"SLUICE_REPLAY_LISTEN=:0"}, []string{"--insecure"}},
		{[]string{"--listen", "7070"}, nil, []string{"listen", "want host:port"}},
		{[]string{"--listen", "127.0.0.1:99999"}, nil, []string{"listen", "want host:port"}},
		{[]string{"--store", "embedded:/x"}, nil, []string{"--data-dir"}},
		{[]string{"--log-format", "xml"}, nil, []string{"xml", "json"}},
		{nil, []string{"SLUICE_LOG_LEVEL=loud"}, []string{"loud"}},
		{[]string{"--store", "mongodb+srv://u:secret@h/x"}, nil, []string{"store"}},
		{[]string{"--policies", testkit.Write(t, dir+"/p.yaml", `[{name: "*", delivery: {ack_timeout: 30}, publish: {scope: galaxy}}]`)}, nil,
			[]string{"ack_timeout", "scope"}},
		{[]string{"--policies", testkit.Write(t, dir+"/q.yaml", `[{name: a}, {name: a}]`)}, nil, []string{"a"}},
	} {
		args := append([]string{"--data-dir", t.TempDir()}, c.args...)
		for _, flag := range []string{"--listen", "--replay-listen", "--ops-listen"} {
			if !strings.Contains(strings.Join(c.args, " "), flag) && !(flag == "--replay-listen" && c.env != nil) {
				args = append(args, flag, "127.0.0.1:0")
			}
		}
		if c.env != nil && !strings.Contains(c.env[0], "REPLAY") {
			args = append(args, "--replay-listen", "127.0.0.1:0")
		}
		out, log, status := testkit.SidecarProgram.Launch(t, c.env, args...).Ended(t)
		if status != 2 || out != "" {
			t.Errorf("%v %v: exit status %d, stdout %q", c.args, c.env, status, out)
		}
		for _, s := range c.says {
			if !strings.Contains(log, s) {
				t.Errorf("%v %v does not say %q: %s", c.args, c.env, s, log)
			}
		}
		if strings.Contains(log, "secret") {
			t.Errorf("a secret in %s", log)
		}
	}
}

// "unless --insecure is given"
func TestInsecure(t *testing.T) {
	t.Parallel()
	s := own(t, "", "--listen", "0.0.0.0:0", "--insecure")
	_, port, err := net.SplitHostPort(s.Listen)
	require.NoError(t, err)
	if a := testkit.Call(t, "POST", "http://127.0.0.1:"+port+"/v1/topics/t/events", "1"); a.Status != 201 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
