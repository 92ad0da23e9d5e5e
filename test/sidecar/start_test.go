package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestRefusesToStart gives the program settings that it must refuse, and reads the reason.
func TestRefusesToStart(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign")
	testkit.Write(t, filepath.Join(foreign, "holiday.jpg"), "not a log")
	badPolicies := testkit.Write(t, filepath.Join(dir, "policies.yaml"), `[{name: "a b", publish: {rate: -1}}]`)
	unknownKey := testkit.Write(t, filepath.Join(dir, "config.yaml"), "node-id: n\nlistn: 127.0.0.1:0\n")
	nobody := testkit.Write(t, filepath.Join(dir, "auth.yaml"), "tokens: []\n")
	auth := func(section string) string {
		return testkit.Write(t, filepath.Join(t.TempDir(), "auth.yaml"), section+"\n")
	}
	peerToken := testkit.Write(t, filepath.Join(dir, "peers.token"), "a-token-of-some-length\n")
	threeTokens := testkit.Write(t, filepath.Join(dir, "three.token"), "one\ntwo\nthree\n")
	for _, c := range []struct {
		name   string
		args   []string
		status int
		says   []string
	}{
		{"beyond loopback", []string{"--listen", "0.0.0.0:0"}, 2, []string{"listen", "--auth-config", "--insecure"}},
		{"replay beyond loopback", []string{"--replay-listen", ":0"}, 2, []string{"replay-listen"}},
		{"no MongoDB host", []string{"--store", "mongodb:///x"}, 2, []string{"store"}},
		{"payloads that no document holds", []string{"--store", "mongodb://127.0.0.1:1/x", "--limits", "payload=16777216"}, 2,
			[]string{"limits", "payload", "at most"}},
		{"headers that no document holds", []string{"--store", "mongodb://127.0.0.1:1/x", "--limits", "header-bytes=9000000"}, 2,
			[]string{"limits", "header-bytes", "no room"}},
		{"an unknown limit", []string{"--limits", "payloads=1"}, 2, []string{"limits", "payloads", "payload"}},
		{"a limit of nothing", []string{"--limits", "key=0"}, 2, []string{"limits", "key", "at least 1"}},
		{"no connections", []string{"--max-connections", "0"}, 2, []string{"max-connections", "at least 1"}},
		{"lease", []string{"--lease", "10ms"}, 2, []string{"lease", "1s"}},
		{"outbox", []string{"--outbox", "mongodb://127.0.0.1/shop"}, 2, []string{"outbox", "#"}},
		{"a name that headers change", []string{"--node-id", "edge "}, 2, []string{"node-id", `"edge "`}},
		{"a name of two lines", []string{"--node-id", "edge\nof it"}, 2, []string{"node-id", `"edge\nof it"`}},
		{"unknown store", []string{"--store", "redis:"}, 2, []string{"redis:", "embedded:"}},
		{"control plane", []string{"--control-plane", "127.0.0.1:1", "--auth-config", auth("control_plane: {ca: none.pem}")}, 2,
			[]string{"control_plane", "none.pem"}},
		{"no control plane", []string{"--auth-config", auth("control_plane: {token_file: x}")}, 2, []string{"control-plane", "is not set"}},
		{"peers", []string{"--peers", "127.0.0.1:1,nowhere,127.0.0.1:0", "--peers", "unix:x"}, 2,
			[]string{"peers", `"nowhere"`, `"127.0.0.1:0"`, `"unix:x"`}},
		{"peers' token", []string{"--peers", "127.0.0.1:1", "--auth-config", auth("peers: {token_file: none.token}")}, 2,
			[]string{"peers.token_file", "none.token"}},
		{"too many tokens of peers", []string{"--auth-config", auth("peers: {token_file: " + threeTokens + "}")}, 2,
			[]string{"peers.token_file", "3 tokens"}},
		{"peers' certificate", []string{"--peers", "127.0.0.1:1", "--auth-config", auth("peers: {cert: x.pem}")}, 2,
			[]string{"peers", "certificate", "key"}},
		{"peers' authority", []string{"--peers", "127.0.0.1:1", "--auth-config", auth("peers: {ca: x.pem}")}, 2, []string{"peers", "x.pem"}},
		{"no peers", []string{"--auth-config", auth("peers: {ca: x.pem}")}, 2, []string{"peers", "missing"}},
		{"peers beyond loopback without a token", []string{"--peers", "127.0.0.1:1", "--replay-listen", "0.0.0.0:0", "--auth-config", nobody}, 2,
			[]string{"replay-listen", "peers.token_file", "--insecure"}},
		{"in clear beyond loopback", []string{"--listen", "0.0.0.0:0", "--auth-config", nobody}, 2,
			[]string{"listen", "0.0.0.0:0", "section tls", "--insecure"}},
		{"ops in clear beyond loopback", []string{"--ops-listen", ":0", "--auth-config", nobody}, 2,
			[]string{"ops-listen", "section tls", "--insecure"}},
		{"a control plane in clear", []string{"--control-plane", "cp.example:18000"}, 2,
			[]string{"control-plane", "cp.example:18000", "control_plane.ca", "--insecure"}},
		{"peers in clear", []string{"--peers", "127.0.0.1:1,10.0.0.7:8083"}, 2, []string{"peers", "10.0.0.7:8083", "peers.ca", "--insecure"}},
		{"a token of peers is not enough", []string{"--peers", "127.0.0.1:1", "--replay-listen", "0.0.0.0:0",
			"--auth-config", auth("peers: {token_file: " + peerToken + "}")}, 2,
			[]string{"replay-listen", "--auth-config"}},
		{"an application without an identity", []string{"--dapr-app", "http://127.0.0.1:1", "--dapr-app-id", "a", "--auth-config", nobody}, 2,
			[]string{"dapr-app-identity", "is needed"}},
		{"an application without a name", []string{"--dapr-app", "http://127.0.0.1:1"}, 2, []string{"dapr-app-id", "is missing"}},
		{"subscriptions of no application", []string{"--dapr-subscriptions", dir}, 2,
			[]string{"dapr-subscriptions", "dapr-app, which is missing"}},
		{"no subscriptions file", []string{"--dapr-app", "http://127.0.0.1:1", "--dapr-app-id", "a", "--dapr-subscriptions", "none.yaml"}, 2,
			[]string{"dapr-subscriptions", "none.yaml"}},
		{"Dapr's API in clear beyond loopback", []string{"--dapr-grpc-listen", ":0", "--auth-config", nobody}, 2,
			[]string{"dapr-grpc-listen", "section tls", "--insecure"}},
		{"auth config", []string{"--auth-config", "x.yaml"}, 2, []string{"auth-config", "x.yaml"}},
		{"policies", []string{"--policies", badPolicies}, 2, []string{"policies[0].name", "policies[0].publish.rate"}},
		{"no policies file", []string{"--policies", filepath.Join(dir, "none.yaml")}, 2, []string{"none.yaml"}},
		{"unknown key in the file", []string{"--config", unknownKey}, 2, []string{"config.yaml:2", "listn"}},
		{"unknown flag", []string{"--colour"}, 2, []string{"colour"}},
		{"origin", []string{"--allowed-origins", "*"}, 2, []string{"allowed-origins"}},
		{"foreign folder", []string{"--data-dir", foreign}, 1, []string{"foreign", "empty"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{
				"--data-dir", filepath.Join(t.TempDir(), "data"),
				"--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
			}, c.args...)
			status, stdout, stderr := runToEnd(t, args...)
			if status != c.status {
				t.Errorf("exit status %d, want %d", status, c.status)
			}
			for _, s := range c.says {
				if !strings.Contains(stderr, s) {
					t.Errorf("stderr does not say %q:\n%s", s, stderr)
				}
			}
			if stdout != "" {
				t.Errorf("stdout: %q", stdout)
			}
		})
	}
}

// TestSecondSidecarIsToldWhoHasTheFolder starts two on one data folder.
func TestSecondSidecarIsToldWhoHasTheFolder(t *testing.T) {
	dir := t.TempDir()
	testkit.StartSidecar(t, dir, "--node-id", "the-first")
	status, _, stderr := runToEnd(t, "--data-dir", dir, "--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen",
		"127.0.0.1:0")
	if status != 1 || !strings.Contains(stderr, "the-first") {
		t.Errorf("exit status %d, stderr %q", status, stderr)
	}
}

// TestSpoolOfAnotherStore starts a sidecar on one store, with events in its spool that are for
// another.
func TestSpoolOfAnotherStore(t *testing.T) {
	t.Parallel()
	db := mongotest.Start(t)
	db.Needs(t, mongotest.Restarts)
	one, two := db.URI(db.NewDatabase(t)), db.URI(db.NewDatabase(t))
	dir := t.TempDir()
	quick := []string{"--store-timeout", "2s", "--lease", lease.String()}
	p := testkit.StartSidecar(t, dir, append(quick, "--store", one)...)
	post(t, p.URL()+"/v1/topics/a/events", `{"n":1}`, http.StatusCreated)
	db.Stop()
	post(t, p.URL()+"/v1/topics/a/events", `{"n":2}`, http.StatusAccepted)
	p.Kill()
	db.Restart()
	status, _, stderr := runToEnd(t, append(quick, "--store", two, "--data-dir", dir,
		"--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")...)
	for _, says := range []string{"1 events for another store", filepath.Join(dir, "spool"), "move the folder away"} {
		if status != 2 || !strings.Contains(stderr, says) {
			t.Errorf("exit status %d, and it does not say %q: %s", status, says, stderr)
		}
	}
	p = testkit.StartSidecar(t, dir, append(quick, "--store", one)...)
	awaitEmptySpool(t, 0, p)
}

// TestStoresThatCannotBeUsed starts a sidecar on a store of another format, and on a server that is
// not in the replica set that the URL names. It ends as soon as the server has answered.
func TestStoresThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	meta := bson.D{{Key: "_id", Value: "store"}, {Key: "id", Value: "x"}, {Key: "format", Value: 2}}
	if _, err := db.Collection("meta").InsertOne(t.Context(), meta); err != nil {
		t.Fatal(err)
	}
	elsewhere := "mongodb://" + mongotest.Shared(t).Addr() + "/?replicaSet=elsewhere"
	for store, says := range map[string]string{db.uri: "it has format 2", elsewhere: "rs.initiate()"} {
		status, _, stderr := runToEnd(t, "--store", store, "--store-timeout", "2s", "--data-dir", t.TempDir(),
			"--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")
		if status != 2 || !strings.Contains(stderr, says) {
			t.Errorf("exit status %d, and it does not say %q: %s", status, says, stderr)
		}
	}
}

// TestGracefulStop stops a sidecar with SIGTERM: exit status 0, and its folder opens again.
func TestGracefulStop(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		p := testkit.StartSidecar(t, dir)
		post(t, p.URL()+"/v1/topics/a/events", `{"n":1}`, http.StatusCreated)
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Fatalf("%v\n%s", err, p.Log())
		}
	}
}

// TestOps sends an operator's requests to the ops listener.
func TestOps(t *testing.T) {
	p := testkit.StartSidecar(t, t.TempDir(), "--node-id", "n1")
	post(t, p.URL()+"/v1/topics/a/events", `{"n":1}`, http.StatusCreated)
	for _, path := range []string{"/healthz", "/readyz"} {
		get(t, p.OpsURL()+path, http.StatusOK)
	}
	if text := get(t, p.OpsURL()+"/metrics", http.StatusOK); !strings.Contains(text, `sluice_events_published_total{topic="a"} 1`) {
		t.Errorf("metrics:\n%s", text)
	}
	var status struct {
		Version string
		NodeID  string `json:"node_id"`
		Store   struct{ URL, State string }
		Queues  map[string]any
		Spool   struct{ Events, Bytes int }
	}
	text := get(t, p.OpsURL()+"/v1/status", http.StatusOK)
	require.NoError(t, json.Unmarshal([]byte(text), &status))
	if status.NodeID != "n1" || status.Store.URL != "embedded:" || status.Store.State != "ok" || status.Version == "" {
		t.Errorf("status %s", text)
	}
	get(t, p.OpsURL()+"/nowhere", http.StatusNotFound)
}

// TestPoliciesReload changes the policies file of a running sidecar.
func TestPoliciesReload(t *testing.T) {
	t.Parallel()
	file := testkit.Write(t, filepath.Join(t.TempDir(), "p.yaml"), `[{name: "*", paused: false}]`)
	p := testkit.StartSidecar(t, t.TempDir(), "--policies", file)
	url := p.URL() + "/v1/topics/a/events"
	post(t, url, `1`, http.StatusCreated)
	testkit.Write(t, file, `[{name: a, paused: true}]`)
	eventually(t, func() bool { return tryPost(t, url, `2`) == http.StatusServiceUnavailable })
	testkit.Write(t, file, `[{name: a, paused: maybe}]`) // refused: the policy in force stays
	eventually(t, func() bool { return strings.Contains(p.Log(), "policies[0].paused") })
	post(t, url, `3`, http.StatusServiceUnavailable)
	testkit.Write(t, file, `[]`)
	eventually(t, func() bool { return tryPost(t, url, `4`) == http.StatusCreated })
}

// eventually waits until the condition holds; policies are to be in force within 3 s, and machines
// under test are slow.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(testkit.Patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("it has not come to pass")
		}
		pause.For(t.Context(), 50*time.Millisecond)
	}
}

func runToEnd(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	program := testkit.SidecarProgram.Binary(t) // which the first test builds
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func tryPost(t *testing.T, url, body string) int {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	return resp.StatusCode
}

func post(t *testing.T, url, body string, want int) {
	t.Helper()
	if got := tryPost(t, url, body); got != want {
		t.Fatalf("POST %s: status %d, want %d", url, got, want)
	}
}

func get(t *testing.T, url string, want int) string {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if resp.StatusCode != want {
		t.Fatalf("GET %s: status %d, want %d: %s", url, resp.StatusCode, want, text)
	}
	return string(text)
}
