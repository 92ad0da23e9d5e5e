package main

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

// arguments are what each command needs to ask something. POLICIES and SCHEMA are files.
var arguments = map[string]string{
	"pub": "t 1", "sub": "t", "events list": "t", "events delete": "t e0 --yes", "replay": "t", "export": "t -", "import": "EVENTS",
	"latest": "t", "status": "", "topics list": "", "topics create": "t", "topics delete": "t --yes", "trace": "t e0",
	"groups list": "t", "groups show": "t g", "groups seek": "t g --to latest --yes", "groups delete": "t g --yes",
	"groups members": "t g", "groups pause": "t g", "groups resume": "t g", "groups slow": "t g --rate 1",
	"dlq list": "t", "dlq show": "t d", "dlq redrive": "t d", "dlq discard": "t d --yes",
	"scheduled list": "t", "scheduled cancel": "t e --yes", "captures reread": "t",
	"policy list": "", "policy get": "t", "policy set": "t paused=true", "policy apply": "-f POLICIES --yes", "policy diff": "-f POLICIES",
	"policy history": "t", "policy rollback": "t 1", "policy delete": "t --yes", "policy pause": "t", "policy resume": "t",
	"policy new-series": "",
	"schema check":      "SCHEMA --policy t", "schema list": "t", "schema show": "t --schema-version 1", "schema asyncapi": "t",
	"fleet sidecars": "", "fleet show": "n", "fleet forget": "n --yes", "fleet topics": "", "fleet groups": "", "fleet usage": "",
	"overview": "", "top": "", "usage": "",
}

// ownCommands ask no server.
var ownCommands = []string{"context add", "context use", "context list", "context show", "context remove", "completion", "demo", "docs"}

// leaves are the commands that can be run, by their words.
func leaves(t *testing.T) map[string]*kong.Node {
	t.Helper()
	parser, err := kong.New(new(commandLine), kong.Name("sluice"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*kong.Node{}
	for _, leaf := range parser.Model.Leaves(true) {
		found[strings.TrimPrefix(leaf.Path(), "sluice ")] = leaf
	}
	return found
}

// words are the command line of a command that is in arguments.
func words(t *testing.T, command string) []string {
	t.Helper()
	all := strings.Fields(command + " " + arguments[command])
	for i, word := range all {
		switch word {
		case "POLICIES":
			all[i] = file(t, "- {name: t, paused: true}\n")
		case "SCHEMA":
			all[i] = file(t, "{}")
		case "EVENTS":
			all[i] = file(t, `{"id":"i","ts":1,"topic":"t","payload":1}`+"\n")
		}
	}
	return all
}

// refuser is a server that refuses every request with a code, and counts them.
type refuser struct {
	*httptest.Server
	mu      sync.Mutex
	asked   int
	changes int      // of those, what would have changed something
	tokens  []string // but for WebSockets, which have theirs in a frame
}

func startRefuser(t *testing.T, start func(http.Handler) *httptest.Server, status int, code string) *refuser {
	r := &refuser{}
	r.Server = start(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked++
		if request.Method != http.MethodGet && request.URL.Query().Get("dry_run") == "" {
			r.changes++
		}
		if request.URL.Path != "/ws" {
			r.tokens = append(r.tokens, request.Header.Get("Authorization"))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":"no","code":"%s"}`, code)
	}))
	t.Cleanup(r.Close)
	return r
}

// TestEveryCommandHonoursItsFlags: a flag about a server leads the command there, or is refused as one that it has no use for.
func TestEveryCommandHonoursItsFlags(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	sidecar, none := start(t, sluicetest.Options{}), &sluicetest.Sidecar{}
	fill(t, sidecar, "t", 1)
	secure := startRefuser(t, httptest.NewTLSServer, http.StatusInternalServerError, "internal")
	secure.Config.ErrorLog = nil
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	for command := range arguments {
		for _, flag := range []string{"url", "replay-url", "ops-url", "control-plane-url", "store", "context", "token", "token-file", "ca"} {
			server := startRefuser(t, httptest.NewServer, http.StatusInternalServerError, "internal")
			args, env := words(t, command), none
			all := []string{"--url", server.URL}
			switch flag {
			case "url":
				args = append(args, all...)
			case "replay-url", "ops-url", "control-plane-url":
				args, env = append(args, "--"+flag, server.URL), sidecar
			case "store":
				args = append(args, "--store", "some", "--control-plane-url", server.URL)
			case "context":
				run(t, none, "", "context", "add", "c", "--url", server.URL).wantOK(t)
				args = append(args, "--context", "c")
			case "token":
				args = append(append(args, all...), "--token", "secret", "--log-level", "error")
			case "token-file":
				args = append(append(args, all...), "--token-file", file(t, "secret"))
			case "ca":
				secure.mu.Lock()
				secure.asked = 0
				secure.mu.Unlock()
				args, server = append(args, "--url", secure.URL, "--ca", ca), secure
			}
			got := run(t, env, "", args...)
			server.mu.Lock()
			asked, tokens := server.asked, server.tokens
			server.mu.Unlock()
			refused := got.status == 2 && (strings.Contains(got.stderr, "does not go with") || strings.Contains(got.stderr, "unknown flag"))
			if got.status == 0 || (asked > 0) == refused {
				t.Errorf("sluice %s: status %d, asked %d times; %s", strings.Join(args, " "), got.status, asked, got.stderr)
			}
			if strings.HasPrefix(flag, "token") && slices.ContainsFunc(tokens, func(token string) bool { return token != "Bearer secret" }) {
				t.Errorf("sluice %s: tokens %q", strings.Join(args, " "), tokens)
			}
		}
	}
	for _, command := range ownCommands[1:] {
		for _, flag := range []string{"--url", "--replay-url", "--ops-url", "--timeout", "--token"} {
			run(t, none, "", append(strings.Fields(command), "bash", flag, "1s")...).wantFailure(t, 2, "")
		}
	}
}

// TestExitStatuses: 1 failed, 2 misuse, 3 not found. policy diff and schema check, whose 1 is an answer, end with 2 for errors.
func TestExitStatuses(t *testing.T) {
	none := &sluicetest.Sidecar{}
	missing := startRefuser(t, httptest.NewServer, http.StatusNotFound, "not_found")
	broken := startRefuser(t, httptest.NewServer, http.StatusInternalServerError, "internal")
	for command := range leaves(t) {
		if _, ok := arguments[command]; ok == slices.Contains(ownCommands, command) {
			t.Errorf("sluice %s is in none of the tables of this file, or in two", command)
		}
	}
	for command := range arguments {
		for server, want := range map[*refuser]int{missing: 3, broken: 1} {
			switch command {
			case "policy diff", "schema check":
				want = 2
			case "schema asyncapi":
				continue // a topic without a schema has any JSON
			}
			args := append(words(t, command), "--url", server.URL)
			for _, flag := range []string{"replay-url", "ops-url", "control-plane-url"} {
				if got := run(t, none, "", append(args, "--"+flag, server.URL)...); got.status != 2 {
					args = append(args, "--"+flag, server.URL)
				}
			}
			got := run(t, none, "", args...)
			if got.status != want || got.stdout != "" || !strings.HasPrefix(got.stderr, "sluice: ") {
				t.Errorf("sluice %s: status %d, want %d; %s%s", strings.Join(args, " "), got.status, want, got.stdout, got.stderr)
			}
		}
		run(t, none, "", append(words(t, command), "--no-such-flag")...).wantFailure(t, 2, "unknown flag --no-such-flag")
		run(t, none, "", append(words(t, command), "-o", "xml")...).wantFailure(t, 2, `"table","wide","json","yaml"`)
	}
}

// TestSeekWantsOnePlace: where a group goes on is said once.
func TestSeekWantsOnePlace(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	for _, where := range []string{"", "--to latest --from latest"} {
		args := append([]string{"groups", "seek", "t", "g", "--yes"}, strings.Fields(where)...)
		run(t, sidecar, "", args...).wantFailure(t, 2, "give --to or --from, one of them")
	}
}

// TestNothingIsDoneUnasked: what cannot be taken back is not done where nobody can be asked, and --yes is not given.
func TestNothingIsDoneUnasked(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "t", 1)
	run(t, sidecar, "", "sub", "t", "--group", "g", "--from", "earliest", "--max", "1").wantOK(t)
	for command := range arguments {
		args := words(t, command)
		if !slices.Contains(args, "--yes") || command == "policy apply" { // which asks only for what --prune deletes
			continue
		}
		server := startRefuser(t, httptest.NewServer, http.StatusInternalServerError, "internal")
		args = slices.DeleteFunc(args, func(word string) bool { return word == "--yes" })
		if strings.HasPrefix(command, "policy ") || strings.HasPrefix(command, "fleet ") {
			args = append(args, "--control-plane-url", server.URL)
		}
		run(t, sidecar, "y\n", args...).wantFailure(t, 2, "--yes")
		if server.changes > 0 {
			t.Errorf("sluice %s changed something", command)
		}
	}
	if n := len(sidecar.Events("t")); n != 1 {
		t.Errorf("%d events are left", n)
	}
	run(t, sidecar, "", "groups", "show", "t", "g").wantOK(t)
}

// TestExamples: every command has examples, and each is a command line that is understood.
func TestExamples(t *testing.T) {
	seen := map[string]bool{}
	check := func(text string) {
		for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
			line = strings.TrimSpace(line)
			if at := strings.Index(line, "sluice "); at >= 0 && (at == 0 || strings.ContainsAny(line[:at], "|(")) {
				seen[parseExample(t, line[at:])] = true
			}
		}
	}
	check(spec().Examples)
	for command, leaf := range leaves(t) {
		for node := leaf; node.Parent != nil; node = node.Parent {
			_, examples, ok := strings.Cut(node.Detail, "Examples:\n")
			if !ok {
				t.Errorf("sluice %s has no examples", command)
			}
			check(examples)
		}
	}
	for command := range leaves(t) {
		if !seen[command] {
			t.Errorf("no example shows sluice %s", command)
		}
	}
}

// parseExample returns the words of the command of an example.
func parseExample(t *testing.T, line string) string {
	t.Helper()
	var args []string
	for rest := strings.TrimPrefix(line, "sluice "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		var word strings.Builder
		for rest != "" && rest[0] != ' ' && rest[0] != '|' && rest[0] != '>' && rest[0] != ')' {
			if quote := rest[0]; quote == '\'' || quote == '"' {
				end := strings.IndexByte(rest[1:], quote) + 1
				word.WriteString(rest[1:end])
				rest = rest[end+1:]
				continue
			}
			word.WriteByte(rest[0])
			rest = rest[1:]
		}
		if word.Len() > 0 || rest != "" && rest[0] == ' ' {
			args = append(args, word.String())
		}
		if rest != "" && rest[0] != ' ' { // the rest is the shell's
			break
		}
	}
	parser, err := kong.New(new(commandLine), kong.Name("sluice"), kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := kong.Trace(parser, args)
	if err == nil {
		err = parsed.Error
	}
	if err == nil {
		err = checkServers(parsed, slices.Contains(args, "--store"))
	}
	if err != nil || parsed.Selected() == nil {
		t.Errorf("%s: %q: %v", line, args, err)
		return ""
	}
	return strings.TrimPrefix(parsed.Selected().Path(), "sluice ")
}
