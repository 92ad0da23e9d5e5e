package access

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// Program is the reader of the file: each program ignores keys of the other.
type Program int

// The programs.
const (
	ControlPlane Program = iota + 1
	Sidecar
)

func (p Program) String() string {
	if p == ControlPlane {
		return "the control plane"
	}
	return "a sidecar"
}

// Bounds of the file.
const (
	defaultNodes     = 100 // of each prefix of node ids
	mostNodesAllowed = 20_000
	maxDocumentBytes = 4 << 20
	maxNameBytes     = 255
)

// FileError has all mistakes in a file of --auth-config, with their lines if they have any.
type FileError struct{ Problems []string }

func (e *FileError) Error() string { return strings.Join(e.Problems, "; ") }

// document is the parsed file.
type document struct {
	tokens, certs, subjects []entry
	jwt                     *jwtSection
	tls                     *tlsFiles
	controlPlane, peers     ClientConfig // how a sidecar speaks to these
	forward                 Forward      // what it lets the control plane do
	xds                     struct{ requireClientCert bool }
}

// entry is one item of tokens, of certs or of subjects.
type entry struct {
	at        string // where it stands: tokens[3]
	line      int
	name      string
	digest    *digest // of a token; nil where it is in tokenFile
	tokenFile string
	may       grant
}

// tlsFiles are the files of the section tls; clientCA may be "".
type tlsFiles struct {
	line                int
	cert, key, clientCA string
}

// parse reads a file for a program. The error is a *FileError; the valid parts are returned with
// it, since they name further files.
func parse(data []byte, program Program) (*document, error) {
	r := reader{program: program}
	doc := new(document)
	if root := r.root(data); root != nil {
		r.object(root, "", documentKeys(&r, doc))
	}
	if doc.xds.requireClientCert && (doc.tls == nil || doc.tls.clientCA == "") {
		r.refuse(nil, "xds.require_client_cert", "needs tls.client_ca, by which client certificates are verified")
	}
	if doc.subjects != nil && doc.jwt == nil {
		r.refuse(nil, "subjects", "needs the section jwt, which says whose tokens are believed")
	}
	if len(r.problems) > 0 {
		return doc, &FileError{r.problems}
	}
	return doc, nil
}

// JSONSchema is the JSON Schema of a program's file, so that editors complete it and point out
// mistakes. It cannot say how keys relate.
func JSONSchema(program Program) map[string]any {
	r := reader{program: program}
	schema := r.schema(documentKeys(&r, new(document)))
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "Who may do what at " + program.String() + " of Sluice"
	return schema
}

func documentKeys(r *reader, doc *document) []key {
	return []key{
		{name: "tokens", doc: "who has a token, and what it may do", value: r.entries(&doc.tokens, true)},
		{name: "certs", doc: "names of client certificates, and what they may do", value: r.entries(&doc.certs, false)},
		{name: "jwt", doc: "whose JSON Web Tokens are believed", value: r.jwt(&doc.jwt)},
		{name: "subjects", doc: "names in JSON Web Tokens, and what they may do", value: r.entries(&doc.subjects, false)},
		{name: "tls", doc: "the certificate of the listeners", value: value{func(n *yaml.Node, at string) {
			doc.tls = &tlsFiles{line: n.Line}
			r.object(n, at, r.tlsKeys(doc.tls))
		}, r.schema(r.tlsKeys(new(tlsFiles)))}},
		{name: "control_plane", only: Sidecar, doc: "how this sidecar speaks to the control plane", value: r.section(append(
			r.client(&doc.controlPlane),
			key{name: "read", doc: "let it read events, for its viewers and readers", value: r.flag(&doc.forward.Read)},
			key{name: "operate", doc: "let it make changes, for its operators and admins", value: r.flag(&doc.forward.Operate)}))},
		{name: "peers", doc: "how this sidecar speaks to other sidecars, and this control plane to others",
			value: r.section(r.client(&doc.peers))},
		{name: "xds", only: ControlPlane, doc: "how sidecars may connect", value: r.section([]key{
			{name: "require_client_cert", doc: "refuse sidecars without a client certificate", value: r.flag(&doc.xds.requireClientCert)},
		})},
	}
}

// section reads an object by its keys.
func (r *reader) section(keys []key) value {
	return value{func(n *yaml.Node, at string) { r.object(n, at, keys) }, r.schema(keys)}
}

func (r *reader) tlsKeys(t *tlsFiles) []key {
	return []key{
		{name: "cert", must: true, doc: "file of the certificate, with its chain", value: r.text(&t.cert)},
		{name: "key", must: true, doc: "file of its private key", value: r.text(&t.key)},
		{name: "client_ca", doc: "file of the authorities that sign client certificates", value: r.text(&t.clientCA)},
	}
}

// authenticates reports whether clients of the program need a token or a certificate.
func (d *document) authenticates(program Program) bool {
	return program == ControlPlane || d.tokens != nil || d.certs != nil || d.jwt != nil
}

// client are the keys of how a sidecar speaks to others.
func (r *reader) client(to *ClientConfig) []key {
	return []key{
		{name: "tls", doc: "use TLS", value: r.flag(&to.TLS)},
		{name: "ca", doc: "file of the authorities; the system's by default", value: r.text(&to.CA)},
		{name: "cert", doc: "file of the client certificate", value: r.text(&to.Cert)},
		{name: "key", doc: "file of its private key", value: r.text(&to.Key)},
		{name: "token_file", doc: "file of the token", value: r.text(&to.TokenFile)},
	}
}

// entries reads the list of tokens, or one of names authenticated in another way.
func (r *reader) entries(to *[]entry, tokens bool) value {
	return value{func(n *yaml.Node, at string) {
		if n.Kind != yaml.SequenceNode {
			r.refuse(n, at, "must be a list such as [{name: …}], not %s", kindOf(n))
			return
		}
		*to = make([]entry, len(n.Content))
		for i, item := range n.Content {
			e := &(*to)[i]
			e.at, e.line = fmt.Sprintf("%s[%d]", at, i), item.Line
			r.object(item, e.at, r.entryKeys(e, tokens))
			r.checkEntry(item, e, tokens)
		}
	}, map[string]any{"type": "array", "items": r.schema(r.entryKeys(new(entry), tokens))}}
}

func (r *reader) entryKeys(e *entry, tokens bool) []key {
	keys := []key{
		{name: "name", must: true, doc: "whom the log names; under certs and subjects the name that the client shows", value: r.name(&e.name)},
		{name: "role", only: ControlPlane, must: true, doc: "what it may do; each role includes those before it", value: r.role(&e.may.role)},
		{name: "sidecar", only: ControlPlane, doc: "the node ids that it may use, with role sidecar",
			value: r.ids(&e.may.nodes, "node id", "orders-*")},
		{name: "nodes", only: ControlPlane, doc: "how many node ids each prefix in sidecar lets in; 100 by default",
			value: r.number(&e.may.mostNodes, mostNodesAllowed)},
		{name: "stores", only: ControlPlane, doc: "the ids of the stores that its sidecars may be on, with role sidecar; all by default",
			value: r.ids(&e.may.stores, "store's id", "5b9fb0b4-*")},
		{name: "policies", only: ControlPlane, doc: "the policies that it may change, with role editor", value: r.patterns(&e.may.policies)},
		{name: "topics", only: ControlPlane, doc: "the only topics that it reads and operates on, with role reader or operator",
			value: r.patterns(&e.may.only)},
		{name: "publish", only: Sidecar, doc: "topics that it may publish to; orders.* is a prefix", value: r.patterns(&e.may.topics[Publish])},
		{name: "subscribe", only: Sidecar, doc: "topics that it may consume", value: r.patterns(&e.may.topics[Subscribe])},
		{name: "groups", only: Sidecar, doc: "consumer groups that it may join; all by default", value: r.patterns(&e.may.groups)},
		{name: "replay", only: Sidecar, doc: "topics that it may replay and export", value: r.patterns(&e.may.topics[Replay])},
		{name: "admin", only: Sidecar, doc: "topics that it may make and delete, with their events and dead letters",
			value: r.patterns(&e.may.topics[Admin])},
		{name: "ops", only: Sidecar, doc: "may use the ops listener", value: r.flag(&e.may.operate)},
	}
	if tokens {
		keys = append(keys,
			key{name: "sha256", doc: "the SHA-256 digest of the token", value: r.sha256(&e.digest)},
			key{name: "token_file", doc: "file of the token", value: r.text(&e.tokenFile)})
	}
	return keys
}

// checkEntry checks how the keys of an entry relate.
func (r *reader) checkEntry(n *yaml.Node, e *entry, tokens bool) {
	if e.may.nodes != nil && e.may.role != RoleSidecar && !r.refused(e.at+".role") {
		r.refuse(n, e.at+".sidecar", "goes with role: sidecar alone; %q does not join as one", e.may.role)
	}
	if e.may.stores != nil && e.may.role != RoleSidecar && !r.refused(e.at+".role") {
		r.refuse(n, e.at+".stores", "goes with role: sidecar alone; %q does not join as one", e.may.role)
	}
	prefix := slices.ContainsFunc(e.may.nodes, func(pattern string) bool { return strings.HasSuffix(pattern, "*") })
	if e.may.mostNodes != 0 && !prefix && !r.refused(e.at+".sidecar", e.at+".nodes") {
		r.refuse(n, e.at+".nodes", "bounds the node ids of a prefix, and sidecar has none, such as \"orders-*\"")
	}
	e.may.mostNodes = cmp.Or(e.may.mostNodes, defaultNodes)
	if e.may.policies != nil && e.may.role != RoleEditor && !r.refused(e.at+".role") {
		r.refuse(n, e.at+".policies", "goes with role: editor alone, not with %q", e.may.role)
	}
	if e.may.only != nil && e.may.role != RoleReader && e.may.role != RoleOperator && !r.refused(e.at+".role") {
		r.refuse(n, e.at+".topics", "goes with role: reader or role: operator, not with %q", e.may.role)
	}
	if !tokens || n.Kind != yaml.MappingNode {
		return
	}
	if (e.digest == nil) == (e.tokenFile == "") && !r.refused(e.at+".sha256", e.at+".token_file") {
		r.refuse(n, e.at, "needs one of sha256 (the digest of the token) and token_file (a file with the token)")
	}
}

// root returns the document's object; nil if there is none.
func (r *reader) root(data []byte) *yaml.Node {
	if len(data) > maxDocumentBytes {
		r.refuse(nil, "", "the file has more than the %d bytes that are read", maxDocumentBytes)
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty; write tokens: [] to refuse everyone")
		}
		r.refuse(nil, "", "not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		r.refuse(nil, "", "more text after the first YAML document; write one")
		return nil
	}
	return doc.Content[0]
}

// name reads a name: text that an audit log can show on one line.
func (r *reader) name(to *string) value {
	text := r.text(to)
	return value{func(n *yaml.Node, at string) {
		text.read(n, at)
		if len(*to) > maxNameBytes || strings.ContainsFunc(*to, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\ufffd' }) {
			r.refuse(n, at, "must have at most %d bytes, and no control characters", maxNameBytes)
		}
	}, text.schema}
}

func (r *reader) role(to *Role) value {
	allowed := append(slices.Clone(roles), RoleSidecar)
	return value{func(n *yaml.Node, at string) {
		if *to = Role(n.Value); n.Kind != yaml.ScalarNode || !slices.Contains(allowed, *to) {
			r.refuse(n, at, "must be one of %v, not %s", allowed, kindOf(n))
		}
	}, map[string]any{"enum": allowed}}
}

// sha256 reads a digest. The error does not quote invalid text: it may be the token.
func (r *reader) sha256(to **digest) value {
	return value{func(n *yaml.Node, at string) {
		var d digest
		sum, err := hex.DecodeString(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || len(sum) != len(d) {
			r.refuse(n, at, "must be the SHA-256 digest of the token: %d hexadecimal digits", 2*len(d))
			return
		}
		copy(d[:], sum)
		*to = &d
	}, map[string]any{"type": []string{"string", "integer"}, "pattern": "^[0-9A-Fa-f]{64}$"}}
}

// ids reads an id or a prefix of ids, or a list of them.
func (r *reader) ids(to *patterns, what, example string) value {
	return value{func(n *yaml.Node, at string) {
		*to = patterns{}
		items := n.Content
		if n.Kind == yaml.ScalarNode {
			items = []*yaml.Node{n}
		} else if n.Kind != yaml.SequenceNode || len(items) == 0 {
			r.refuse(n, at, "must be a %s, a prefix such as %q, or a list of these, not %s", what, example, kindOf(n))
		}
		for _, item := range items {
			var pattern string
			r.name(&pattern).read(item, at)
			if strings.Contains(strings.TrimSuffix(pattern, "*"), "*") {
				r.refuse(item, at, "must be a %s, or a prefix followed by *, not %s", what, kindOf(item))
			}
			*to = append(*to, pattern)
		}
	}, map[string]any{"anyOf": []any{textSchema, map[string]any{"type": "array", "minItems": 1, "items": textSchema}}}}
}

// patterns reads a list of names and prefixes. A list that is given is not nil.
func (r *reader) patterns(to *patterns) value {
	return value{func(n *yaml.Node, at string) {
		*to = patterns{}
		if n.Kind != yaml.SequenceNode {
			r.refuse(n, at, `must be a list such as [orders.created, "orders.*"], not %s`, kindOf(n))
			return
		}
		ofTopics, check := !strings.HasSuffix(at, ".groups") && !strings.HasSuffix(at, ".policies"), codec.CheckReadTopic
		if strings.HasSuffix(at, ".groups") {
			check = codec.CheckGroup
		}
		for i, item := range n.Content {
			literal := strings.TrimSuffix(item.Value, "*")
			bad := literal != "" && check(literal) != nil || item.Value == "" || strings.Contains(literal, "*")
			if item.Kind != yaml.ScalarNode || bad {
				r.refuse(item, fmt.Sprintf("%s[%d]", at, i), "must be a name, or a prefix followed by *, not %s", kindOf(item))
				continue
			}
			if ofTopics && strings.HasSuffix(item.Value, wire.DeadLetterSuffix) {
				r.refuse(item, fmt.Sprintf("%s[%d]", at, i), "%s gives no rights: those to dead letters are those to their topic, %s",
					shown(item.Value), shown(strings.TrimSuffix(item.Value, wire.DeadLetterSuffix)))
				continue
			}
			*to = append(*to, item.Value)
		}
	}, map[string]any{"type": "array", "items": textSchema}}
}
