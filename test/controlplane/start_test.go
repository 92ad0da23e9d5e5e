package controlplane

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

// "Every program: --help; --version".
func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	out, _, status := testkit.ControlPlaneProgram.Launch(t, nil, "--help").Ended(t)
	for _, flag := range []string{
		"--xds-listen", "--http-listen", "--data-dir", "--store", "--policies", "--auth-config", "--insecure",
		"--config", "--log-format", "--log-level", "--version", "127.0.0.1:18000", "127.0.0.1:7080", "SLUICE_",
	} {
		if !strings.Contains(out, flag) {
			t.Errorf("--help does not say %s", flag)
		}
	}
	version, _, status2 := testkit.ControlPlaneProgram.Launch(t, nil, "--version").Ended(t)
	if status != 0 || status2 != 0 || strings.TrimSpace(version) == "" {
		t.Errorf("exit status %d and %d, version %q", status, status2, version)
	}
}

// overSocket is a client that connects through a unix socket.
func overSocket(t testing.TB, path string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// "Once ready, each program prints exactly one line to stdout: a JSON object … with the addresses
// really bound (the control plane: xds, http)"; "unix:/path"; "SIGTERM/SIGINT drain and exit 0";
// "Logs are structured … on stderr".
func TestReadyLine(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		dir := shortDir(t)
		web, grpc := filepath.Join(dir, "h.sock"), filepath.Join(dir, "x.sock")
		p := testkit.ControlPlaneProgram.Launch(t, nil, "--data-dir", filepath.Join(dir, "data"), "--http-listen", "unix:"+web, "--xds-listen",
			"unix:"+grpc,
			"--log-format", "json", "--log-level", "debug")
		line, err := p.Stdout.ReadString('\n')
		require.NoError(t, err)
		ready := testkit.ParseObject(t, []byte(line))
		if len(ready) != 3 || ready["ready"] != true || ready["xds"] != "unix:"+grpc || ready["http"] != "unix:"+web {
			t.Errorf("%s", line)
		}
		client := overSocket(t, web)
		for _, host := range []string{"localhost", "anything"} {
			if a := testkit.CallWith(t, client, "PUT", "http://"+host+"/v1/policies/t", `{"paused":true}`,
				"Content-Type: application/json"); a.Status/100 != 2 {
				t.Errorf("over the socket as %s: %d %s", host, a.Status, a.Body)
			}
		}
		a := testkit.CallWith(t, client, "GET", "http://localhost/v1/policies", "", "Origin: http://evil.example")
		refused(t, "over the socket with an Origin", a, 403, "forbidden")
		s := app{testkit.StartSidecar(t, t.TempDir(), "--control-plane", "unix:"+grpc)}
		refused(t, "a topic paused through sockets alone", s.publish(t, "t"), 503, "topic_paused")
		client.CloseIdleConnections()
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
		if _, err := os.Stat(web); err == nil {
			t.Errorf("%s is left behind", web)
		}
	}
}

// For addresses with port 0, the program says the port that it got.
func TestAddresses(t *testing.T) {
	t.Parallel()
	p := testkit.ControlPlaneProgram.Launch(t, nil, "--data-dir", t.TempDir(), "--http-listen", "localhost:0", "--xds-listen", "127.0.0.1:0")
	line, err := p.Stdout.ReadString('\n')
	require.NoError(t, err)
	ready := testkit.ParseObject(t, []byte(line))
	for _, name := range []string{"xds", "http"} {
		if host, port, err := net.SplitHostPort(ready.Text(name)); err != nil || host == "" || port == "0" {
			t.Errorf("%s: %s", name, line)
		}
	}
	if a := testkit.Call(t, "GET", "http://"+ready.Text("http")+"/healthz", ""); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// "precedence flag > environment > file > default"; "Keys in the file are the flags' names";
// "SLUICE_ + the flag's name in capitals, dashes as underscores".
func TestPrecedence(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	at := func(name string) string { return "unix:" + filepath.Join(dir, name) }
	config := testkit.Write(t, filepath.Join(dir, "c.yaml"), "http-listen: "+at("file")+"\nxds-listen: "+at("x")+"\nstore: \"embedded:\"\n")
	environment := []string{"SLUICE_HTTP_LISTEN=" + at("environment")}
	for want, p := range map[string]struct{ env, args []string }{
		"file":        {nil, []string{"--config", config}},
		"environment": {environment, []string{"--config", config}},
		"flag":        {environment, []string{"--config", config, "--http-listen", at("flag")}},
	} {
		l := testkit.ControlPlaneProgram.Launch(t, p.env,
			append(p.args, "--data-dir", filepath.Join(dir, want+".d"), "--xds-listen", at("x-"+want))...)
		line, err := l.Stdout.ReadString('\n')
		require.NoError(t, err)
		if got := testkit.ParseObject(t, []byte(line)).Text("http"); got != at(want) {
			t.Errorf("%s: %s", want, line)
		}
	}
}

// "an unknown key in the file is an error that names the key and its line"; "A listener that is not
// loopback refuses to start without --auth-config (exit status 2, saying why) unless --insecure is
// given".
func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		env  []string
		says []string
	}{
		{[]string{"--config", testkit.Write(t, dir+"/c.yaml", "store: \"embedded:\"\n\nhttp_listen: x\n")}, nil, []string{"http_listen", "3"}},
		{[]string{"--config", testkit.Write(t, dir+"/d.yaml", "store: [\n")}, nil, []string{"d.yaml"}},
		{[]string{"--config", dir + "/none.yaml"}, nil, []string{"none.yaml"}},
		{[]string{"--http-listen", "0.0.0.0:0"}, nil, []string{"http-listen", "--auth-config", "--insecure"}},
		{[]string{"--http-listen", ":0"}, nil, []string{"http-listen", "--insecure"}},
		{[]string{"--xds-listen", "[::]:0"}, nil, []string{"xds-listen", "--insecure"}},
		{nil, []string{"SLUICE_INSECURE=maybe"}, []string{"SLUICE_INSECURE"}},
		{[]string{"--http-listen", "7080"}, nil, []string{"http-listen"}},
		{[]string{"--log-format", "xml"}, nil, []string{"xml", "json"}},
		{nil, []string{"SLUICE_LOG_LEVEL=loud"}, []string{"loud"}},
		{[]string{"--store", "postgres://u:secret@h/x"}, nil, []string{"store"}},
		{[]string{"--auth-config", dir + "/no-auth.yaml"}, nil, []string{"no-auth.yaml"}},
		{[]string{"--policies", dir + "/no-policies.yaml"}, nil, []string{"no-policies.yaml"}},
		{[]string{"--policies", testkit.Write(t, dir+"/p.yaml",
			"- name: a\n  publish: {scope: galaxy}\n- name: b\n  delivery: {ack_timeout: 30}\n")}, nil,
			[]string{"scope", "line 2", "ack_timeout", "line 4"}},
	} {
		args := append([]string{"--data-dir", t.TempDir()}, c.args...)
		for _, flag := range []string{"--xds-listen", "--http-listen"} {
			if !strings.Contains(strings.Join(c.args, " "), flag) {
				args = append(args, flag, "127.0.0.1:0")
			}
		}
		out, log, status := testkit.ControlPlaneProgram.Launch(t, c.env, args...).Ended(t)
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

// "--control-plane HOST:PORT": the sidecar refuses a value that is no address.
func TestControlPlaneAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"nonsense", "http://127.0.0.1:18000", ":18000", "127.0.0.1:", "unix:"} {
		out, log, status := testkit.SidecarProgram.Launch(t, nil, "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--replay-listen",
			"127.0.0.1:0",
			"--ops-listen", "127.0.0.1:0", "--control-plane", address).Ended(t)
		if status != 2 || out != "" || !strings.Contains(log, "control-plane") {
			t.Errorf("%s: exit status %d, stdout %q, %s", address, status, out, log)
		}
	}
}

// "unless --insecure is given". Then any name may lead to the listener.
func TestInsecure(t *testing.T) {
	t.Parallel()
	p := start(t, "--http-listen", "0.0.0.0:0", "--xds-listen", "0.0.0.0:0", "--insecure")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.URL(), "http://"))
	require.NoError(t, err)
	base := "http://127.0.0.1:" + port
	if a := testkit.Call(t, "GET", base+"/v1/policies", "", "Host: control.example"); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	refused(t, "a foreign page", testkit.Call(t, "GET", base+"/v1/policies", "", "Origin: http://evil.example"), 403, "forbidden")
}

// "Ops listener of every server": the control plane's is its HTTP listener.
func TestOps(t *testing.T) {
	t.Parallel()
	p := start(t)
	v := p.put(t, "orders.*", `{"publish":{"rate":5}}`)
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := p.call(t, "GET", path, ""); a.Status != 200 {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	a := p.call(t, "GET", "/metrics", "")
	if a.Status != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") || !strings.Contains(string(a.Body), "\nsluice_") {
		t.Errorf("%d %v %.200s", a.Status, a.Header, a.Body)
	}
	o := p.get(t, "/v1/status")
	for _, name := range []string{"version", "node_id", "store.url", "store.state", "policies", "connections", "queues", "subscriptions",
		"spool.events", "spool.bytes", "peers"} {
		if o.At(name) == nil {
			t.Errorf("status has no %s: %v", name, o)
		}
	}
	if list := o.List("policies"); len(list) != 1 || list[0]["name"] != "orders.*" || list[0].Text("version") != v.Text("version") ||
		list[0].Text("source") == "" {
		t.Errorf("policies: %v", o)
	}
}

// A token allows the requests of its role; "unauthorized / forbidden: 401 / 403".
func TestAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "viewer"), "look\n")
	testkit.Write(t, filepath.Join(dir, "admin"), "change\n")
	config := testkit.Write(t, filepath.Join(dir, "auth.yaml"),
		"tokens:\n- {name: eve, role: viewer, token_file: viewer}\n- {name: ann, role: admin, token_file: admin}\n")
	p := start(t, "--auth-config", config, "--http-listen", "0.0.0.0:0", "--insecure")
	const look, change, body = "Authorization: Bearer look", "Authorization: Bearer change", `{"paused":true}`
	refused(t, "no token", p.call(t, "GET", "/v1/policies", ""), 401, "unauthorized")
	refused(t, "no token", p.call(t, "PUT", "/v1/policies/a", body), 401, "unauthorized")
	refused(t, "another token", p.call(t, "GET", "/v1/policies", "", "Authorization: Bearer guess"), 401, "unauthorized")
	refused(t, "a viewer", p.call(t, "PUT", "/v1/policies/a", body, look), 403, "forbidden")
	if a := p.call(t, "PUT", "/v1/policies/a", body, change); a.Status != 201 || a.JSON(t)["updated_by"] != "ann" {
		t.Errorf("an admin: %d %s", a.Status, a.Body)
	}
	if a := p.call(t, "GET", "/v1/policies/a", "", look); a.Status != 200 {
		t.Errorf("a viewer: %d %s", a.Status, a.Body)
	}
	refused(t, "a viewer", p.call(t, "DELETE", "/v1/policies/a", "", look), 403, "forbidden")
	for _, path := range []string{"/healthz", "/readyz", "/"} {
		if a := p.call(t, "GET", path, ""); a.Status != 200 {
			t.Errorf("%s without a token: %d", path, a.Status)
		}
	}
}

// TestLog: the log says when the control plane is ready and stops, which sidecars come and go, and who changes which policies.
func TestLog(t *testing.T) {
	t.Parallel()
	p := start(t)
	s := p.sidecar(t, "node-7")
	logs := func(part string) func() bool { return func() bool { return strings.Contains(p.Log(), part) } }
	testkit.Eventually(t, "the sidecar is noted", logs(`msg="a sidecar has connected" node=node-7`))
	p.call(t, "PUT", "/v1/policies/orders", `{"paused":true}`, "Sluice-User: alice")
	p.call(t, "PUT", "/v1/policies/orders", `{"paused":true}`, "Sluice-User: bob") // which changes nothing
	require.NoError(t, s.Stop(t.Context()))
	testkit.Eventually(t, "its end is noted", logs(`msg="a sidecar has disconnected" node=node-7`))
	require.NoError(t, p.Stop(t.Context()))
	log := p.Log()
	for _, line := range []string{
		"msg=ready program=sluice-controlplane",
		`msg="policies changed" by="alice (not verified)" revision=1 changes="created orders (version 1)"`,
		"msg=stopping",
	} {
		if n := strings.Count(log, line); n != 1 {
			t.Errorf("%d lines with %s in\n%s", n, line, log)
		}
	}
	if strings.Contains(log, "bob") {
		t.Errorf("what changed nothing is noted:\n%s", log)
	}
}
