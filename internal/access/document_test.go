package access

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-bus/sluice/test/require"
)

const digestText = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func TestParseTakes(t *testing.T) {
	doc, err := parse([]byte(`
tokens:
  - name: orders-service
    token_file: orders
    publish: [orders.*]
    subscribe: [orders.*, customers.created]
    groups: [billing, "billing-*"]
    replay: ["*"]
    admin: [orders.*]
    ops: true
  - {name: reader, sha256: `+digestText+`}
certs:
  - {name: node-7, replay: ["*"]}
tls: {cert: server.pem, key: server.key, client_ca: ca.pem}
`), Sidecar)
	require.NoError(t, err)
	e := doc.tokens[0]
	if e.name != "orders-service" || e.tokenFile != "orders" || !e.may.operate {
		t.Errorf("%+v", e)
	}
	if e.may.groups.String() != "billing, billing-*" || e.may.topics[Admin].String() != "orders.*" {
		t.Errorf("%+v", e.may)
	}
	if e := doc.tokens[1]; e.digest == nil || e.may.groups != nil {
		t.Errorf("%+v", e)
	}
	if doc.certs[0].name != "node-7" || doc.tls.clientCA != "ca.pem" {
		t.Errorf("%+v %+v", doc, doc.tls)
	}
	doc, err = parse([]byte(`
tokens: [{name: alice, role: editor, sha256: `+digestText+`}]
tls: {cert: a, key: b, client_ca: c}
xds: {require_client_cert: true}`), ControlPlane)
	if err != nil || doc.tokens[0].may.role != RoleEditor || !doc.xds.requireClientCert {
		t.Errorf("%+v %v", doc, err)
	}
}

func TestParseRefuses(t *testing.T) {
	token := "tokens: [{name: a, sha256: " + digestText + ", "
	for _, tc := range []struct {
		name    string
		program Program
		text    string
		want    []string // all problems
	}{
		{"empty", Sidecar, "", []string{"not YAML: it is empty; write tokens: [] to refuse everyone"}},
		{"no YAML", Sidecar, "a: [", []string{"not YAML: line 1: did not find expected node content"}},
		{"two documents", Sidecar, "tokens: []\n---\ntokens: []", []string{"more text after the first YAML document; write one"}},
		{"dead letters", Sidecar, token + "subscribe: [a, a.dlq], groups: [g.dlq]}]", []string{
			`line 1: tokens[0].subscribe[1]: "a.dlq" gives no rights: those to dead letters are those to their topic, "a"`,
		}},
		{"no object", Sidecar, "[]", []string{
			"line 1: must be an object with tokens, certs, jwt, subjects, tls, control_plane, peers, not a list",
		}},
		{"unknown keys", ControlPlane, "token: []\ntls: {crt: a}", []string{
			"line 1: token: unknown key; allowed here: tokens, certs, jwt, subjects, tls, peers, xds",
			"line 2: tls.crt: unknown key; allowed here: cert, key, client_ca",
			"line 2: tls.cert: is missing",
			"line 2: tls.key: is missing",
		}},
		{"twice", Sidecar, "tokens: []\ntokens: []", []string{"line 2: tokens: the key occurs twice"}},
		{"an alias", Sidecar, "tokens: &a []\ncerts: *a", []string{"line 2: certs: is an alias; write the value out"}},
		{"of the other program", Sidecar, token + "role: editor}]\nxds: {require_client_cert: true}", []string{
			"line 1: tokens[0].role: means nothing to a sidecar; " +
				"allowed here: name, publish, subscribe, groups, replay, admin, ops, sha256, token_file",
			"line 2: xds: means nothing to a sidecar; allowed here: tokens, certs, jwt, subjects, tls, control_plane, peers",
		}},
		{"of a sidecar", ControlPlane, token + "role: viewer, publish: [a], ops: true}]", []string{
			"line 1: tokens[0].publish: means nothing to the control plane; allowed here: " +
				"name, role, sidecar, nodes, stores, policies, topics, sha256, token_file",
			"line 1: tokens[0].ops: means nothing to the control plane; allowed here: " +
				"name, role, sidecar, nodes, stores, policies, topics, sha256, token_file",
		}},
		{"policies that cannot be", ControlPlane, token +
			"role: admin, policies: [a]}, {name: b, token_file: b, role: editor, policies: ['a*b', a.*, '']}]", []string{
			`line 1: tokens[0].policies: goes with role: editor alone, not with "admin"`,
			`line 1: tokens[1].policies[0]: must be a name, or a prefix followed by *, not "a*b"`,
			`line 1: tokens[1].policies[2]: must be a name, or a prefix followed by *, not ""`,
		}},
		{"topics that cannot be", ControlPlane, token + "role: editor, topics: [a]}, {name: b, token_file: b, role: reader, topics: ['']}]",
			[]string{
				`line 1: tokens[0].topics: goes with role: reader or role: operator, not with "editor"`,
				`line 1: tokens[1].topics[0]: must be a name, or a prefix followed by *, not ""`,
			}},
		{"node ids that cannot be", ControlPlane, token + "role: editor, sidecar: a}, {name: b, token_file: b, role: sidecar, sidecar: {}}, " +
			"{name: c, token_file: c, role: sidecar, sidecar: ['a*b', '', \"a\\n\", [x]]}, {name: d, token_file: d, role: sidecar, sidecar: []}]",
			[]string{
				`line 1: tokens[0].sidecar: goes with role: sidecar alone; "editor" does not join as one`,
				`line 1: tokens[1].sidecar: must be a node id, a prefix such as "orders-*", or a list of these, not an object`,
				`line 1: tokens[2].sidecar: must be a node id, or a prefix followed by *, not "a*b"`,
				`line 1: tokens[2].sidecar: must be a text that is not empty, not ""`,
				`line 1: tokens[2].sidecar: must have at most 255 bytes, and no control characters`,
				`line 1: tokens[2].sidecar: must be a text that is not empty, not a list`,
				`line 1: tokens[3].sidecar: must be a node id, a prefix such as "orders-*", or a list of these, not a list`,
			}},
		{"no role", ControlPlane, token + "}]", []string{"line 1: tokens[0].role: is missing"}},
		{"a wrong role", ControlPlane, token + "role: root}]", []string{
			`line 1: tokens[0].role: must be one of [viewer reader operator editor admin sidecar], not "root"`,
		}},
		{"no token", Sidecar, "tokens:\n - name: a\n - name: b\n   token_file: f\n   sha256: " + digestText, []string{
			"line 2: tokens[0]: needs one of sha256 (the digest of the token) and token_file (a file with the token)",
			"line 3: tokens[1]: needs one of sha256 (the digest of the token) and token_file (a file with the token)",
		}},
		{"the token itself", Sidecar, "tokens: [{name: a, sha256: my-secret}]", []string{
			"line 1: tokens[0].sha256: must be the SHA-256 digest of the token: 64 hexadecimal digits",
		}},
		{"wrong values", Sidecar, token + "publish: orders, subscribe: ['a*b', '', [x]], groups: [a/b], ops: 1}]", []string{
			`line 1: tokens[0].publish: must be a list such as [orders.created, "orders.*"], not "orders"`,
			`line 1: tokens[0].subscribe[0]: must be a name, or a prefix followed by *, not "a*b"`,
			`line 1: tokens[0].subscribe[1]: must be a name, or a prefix followed by *, not ""`,
			`line 1: tokens[0].subscribe[2]: must be a name, or a prefix followed by *, not a list`,
			`line 1: tokens[0].groups[0]: must be a name, or a prefix followed by *, not "a/b"`,
			`line 1: tokens[0].ops: must be true or false, not "1"`,
		}},
		{"no names", Sidecar, "tokens: [{sha256: " + digestText + "}, {name: \"a\\nb\", sha256: " + digestText + "}, x]\ncerts: {}", []string{
			"line 1: tokens[0].name: is missing",
			"line 1: tokens[1].name: must have at most 255 bytes, and no control characters",
			`line 1: tokens[2]: must be an object with name, publish, subscribe, groups, replay, admin, ops, sha256, token_file, not "x"`,
			"line 2: certs: must be a list such as [{name: …}], not an object",
		}},
		{"no token for a certificate", Sidecar, "certs: [{name: a, token_file: b}]", []string{
			"line 1: certs[0].token_file: unknown key; allowed here: name, publish, subscribe, groups, replay, admin, ops",
		}},
		{"no authority", ControlPlane, "tokens: []\nxds: {require_client_cert: true}", []string{
			"xds.require_client_cert: needs tls.client_ca, by which client certificates are verified",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parse([]byte(tc.text), tc.program)
			bad, ok := errors.AsType[*FileError](err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			if got, want := strings.Join(bad.Problems, "\n"), strings.Join(tc.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"tokens:\n - {name: a, role: editor, sha256: " + digestText + "}", "tokens: [{name: a, token_file: b, publish: [a.*], ops: true}]",
		"certs: [{name: x, role: admin}]\ntls: {cert: a, key: b, client_ca: c}\nxds: {require_client_cert: true}",
		"a: &b [*b]", "? [a]\n: b", "<<: {tokens: []}", "tokens: !!binary abc", "# nothing", "---\n---", "tokens: [[", "\xff",
		"{tokens: [], tokens: []}",
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	log := slog.New(slog.DiscardHandler)
	f.Fuzz(func(t *testing.T, data []byte, sidecar bool) {
		program := ControlPlane
		if sidecar {
			program = Sidecar
		}
		doc, err := parse(data, program)
		if err != nil {
			bad, ok := errors.AsType[*FileError](err)
			if !ok || len(bad.Problems) == 0 || !utf8.ValidString(err.Error()) && utf8.Valid(data) {
				t.Fatalf("%q: %v", data, err)
			}
		}
		_ = doc.names()
		// A file is refused, or all of its entries are in force and no others.
		rules, err := build(&source{document: data}, program, log)
		if (rules == nil) == (err == nil) {
			t.Fatalf("%q: %v, %v", data, rules, err)
		}
		if rules != nil && (len(rules.tokens) != len(doc.tokens) || len(rules.certs) != len(doc.certs)) {
			t.Fatalf("%q: %d tokens and %d certificates of %+v", data, len(rules.tokens), len(rules.certs), doc)
		}
	})
}
