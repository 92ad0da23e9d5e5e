package access

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// rules are the checked content of the files. They do not change.
type rules struct {
	program           Program
	tokens            map[digest]*holder
	names             map[string]*holder // the first entry of each
	certs             []*holder          // in the file's order: the first that fits a certificate counts
	jwt               *verifier          // nil without the section
	subjects          []*holder          // of its tokens, as certs
	roots             map[digest]bool
	tls               *tls.Config // nil without the section
	requireClientCert bool        // of clients that join

	authenticates       bool         // a client needs a token or a certificate
	controlPlane, peers ClientConfig // their files are named as in the document
	forward             Forward
	peerTokens          *peerTokens // nil without
}

// holder is the entry of a token.
type holder struct {
	at   string
	name string
	may  grant
	used atomic.Bool // a token of it has come in since the program started
}

// A token shorter than this can be guessed.
const shortToken = 16

// Certificates that expire sooner than this are logged.
const endsSoon = 7 * 24 * time.Hour

// build checks the files that were read and makes rules of them. The error is a *FileError. It logs
// doubtful settings that are no error.
func build(s *source, program Program, log *slog.Logger) (*rules, error) {
	doc, err := parse(s.document, program)
	if err != nil {
		return nil, err
	}
	b := builder{source: s, log: log, rules: &rules{
		program: program, tokens: make(map[digest]*holder), names: make(map[string]*holder),
		requireClientCert: doc.xds.requireClientCert, authenticates: doc.authenticates(program),
		controlPlane: doc.controlPlane, peers: doc.peers, forward: doc.forward,
	}}
	for i := range doc.tokens {
		b.token(&doc.tokens[i])
	}
	for i := range doc.certs {
		b.listed(&b.rules.certs, &doc.certs[i])
	}
	for i := range doc.subjects {
		b.listed(&b.rules.subjects, &doc.subjects[i])
	}
	if doc.jwt != nil {
		b.jwt(doc.jwt)
	}
	if doc.tls != nil {
		b.tls(doc.tls)
	}
	if doc.peers.TokenFile != "" {
		b.peers(doc.peers.TokenFile)
	}
	if len(b.problems) > 0 {
		return nil, &FileError{b.problems}
	}
	return b.rules, nil
}

type builder struct {
	*source
	rules    *rules
	log      *slog.Logger
	problems []string
}

func (b *builder) refuse(line int, at, format string, args ...any) {
	text := at + ": " + fmt.Sprintf(format, args...)
	if line > 0 {
		text = fmt.Sprintf("line %d: %s", line, text)
	}
	b.problems = append(b.problems, text)
}

func (b *builder) token(e *entry) {
	sum := e.digest
	if sum == nil {
		f := b.files[e.tokenFile]
		token := strings.TrimSpace(string(f.data))
		switch {
		case f.err != nil:
			b.refuse(e.line, e.at+".token_file", "%v", f.err)
			return
		case token == "":
			b.refuse(e.line, e.at+".token_file", "%s is empty", e.tokenFile)
			return
		case len(token) > wire.MaxTokenBytes || !isToken(token):
			b.refuse(e.line, e.at+".token_file", "%s holds no token: one has at most %d visible ASCII characters", e.tokenFile, wire.MaxTokenBytes)
			return
		case len(token) < shortToken:
			b.log.Warn("a token is so short that it can be guessed", "entry", e.at, "name", e.name, "length", len(token))
		}
		d := digestOf(token)
		sum = &d
		warnOfReadable(b.log, e.tokenFile, f)
	}
	if before, twice := b.rules.tokens[*sum]; twice {
		b.refuse(e.line, e.at, "it is the token of %s already; for a rotation, give the name a second entry with a new token", before.at)
		return
	}
	b.rules.tokens[*sum] = b.holder(e)
}

func (b *builder) holder(e *entry) *holder {
	h := &holder{at: e.at, name: e.name, may: e.may}
	if b.rules.names[e.name] == nil {
		b.rules.names[e.name] = h
	}
	return h
}

// listed adds an entry to a list of names.
func (b *builder) listed(list *[]*holder, e *entry) {
	if i := slices.IndexFunc(*list, func(h *holder) bool { return h.name == e.name }); i >= 0 {
		b.refuse(e.line, e.at+".name", "%s is the name of %s already", shown(e.name), (*list)[i].at)
	}
	*list = append(*list, b.holder(e))
}

func (b *builder) tls(t *tlsFiles) {
	cert, key := b.files[t.cert], b.files[t.key]
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols}
	b.rules.tls = c
	switch pair, err := tls.X509KeyPair(cert.data, key.data); {
	case cert.err != nil || key.err != nil:
		if cert.err != nil {
			b.refuse(t.line, "tls.cert", "%v", cert.err)
		}
		if key.err != nil {
			b.refuse(t.line, "tls.key", "%v", key.err)
		}
	case err != nil:
		b.refuse(t.line, "tls", "%s and %s are no certificate and its key: %v", t.cert, t.key, err)
	default:
		c.Certificates = []tls.Certificate{pair}
		warnOfReadable(b.log, t.key, key)
		if left := time.Until(pair.Leaf.NotAfter); left < endsSoon {
			b.log.Warn("the certificate of this server ends soon, or has ended", "file", t.cert, "not_after", pair.Leaf.NotAfter)
		}
	}
	if t.clientCA == "" {
		return
	}
	ca := b.files[t.clientCA]
	if ca.err != nil {
		b.refuse(t.line, "tls.client_ca", "%v", ca.err)
		return
	}
	pool, roots, err := certificates(ca.data)
	if err != nil {
		b.refuse(t.line, "tls.client_ca", "%s: %v", t.clientCA, err)
		return
	}
	c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, pool
	b.rules.roots = make(map[digest]bool)
	for _, root := range roots {
		b.rules.roots[sha256.Sum256(root.Raw)] = true
	}
}

// othersRead is the permission that a secret's file should not have.
const othersRead fs.FileMode = 0o004

// warnOfReadable warns of a file with a secret that other users can read.
func warnOfReadable(log *slog.Logger, path string, f file) {
	if runtime.GOOS != "windows" && f.mode&othersRead != 0 {
		log.Warn("a file with a secret can be read by every user of this machine", "file", path, "mode", f.mode.String())
	}
}

// client returns the certificate that a connection proved, if an authority of the rules in force
// has signed it; nil: none.
func (r *rules) client(cs *tls.ConnectionState) *x509.Certificate {
	if cs == nil {
		return nil
	}
	for _, chain := range cs.VerifiedChains {
		if root := chain[len(chain)-1]; r.roots[sha256.Sum256(root.Raw)] && time.Now().Before(chain[0].NotAfter) {
			return chain[0]
		}
	}
	return nil
}

// byToken finds the identity of a token.
func (r *rules) byToken(d digest) (Identity, error) {
	h := r.tokens[d]
	if h == nil {
		return Identity{}, wire.Errorf(wire.Unauthorized, "the token is not known here, or not any more")
	}
	return Identity{Name: h.name, Role: h.may.role, Verified: true, may: &h.may, rules: r, entry: h, digest: d}, nil
}

// byName finds the identity of a name, without authentication.
func (r *rules) byName(name string) (Identity, error) {
	h := r.names[name]
	if h == nil {
		return Identity{}, wire.Errorf(wire.Unauthorized, "%s is not the name of an entry, or not any more", shown(name))
	}
	return Identity{Name: name, Role: h.may.role, Verified: true, may: &h.may, rules: r, named: true}, nil
}

// byCertificate finds the identity of a connection by its certificate.
func (r *rules) byCertificate(cs *tls.ConnectionState) (Identity, error) {
	cert := r.client(cs)
	if cert == nil {
		return Identity{}, wire.Errorf(wire.Unauthorized, "no token: send one as Authorization: Bearer …")
	}
	names := namesOf(cert)
	for _, h := range r.certs {
		if slices.Contains(names, h.name) {
			return Identity{Name: h.name, Role: h.may.role, Verified: true, may: &h.may, rules: r, cert: cs}, nil
		}
	}
	if r.program == Sidecar || len(names) == 0 {
		return Identity{}, wire.Errorf(wire.Unauthorized, "no token, and none of the client certificate's names (%s) is listed under certs",
			patterns(names))
	}
	// A certificate that the file does not list is that of the sidecar that it names.
	may := &grant{role: RoleSidecar, nodes: slices.DeleteFunc(slices.Clone(names),
		func(name string) bool { return strings.HasSuffix(name, "*") })}
	return Identity{Name: names[0], Role: may.role, Verified: true, may: may, rules: r, cert: cs}, nil
}

// checkBound names the entries whose credentials may join as any sidecar, in a *FileError.
func (r *rules) checkBound() error {
	return r.checkSidecars("may join as any sidecar; name its node ids, as in sidecar: NAME or sidecar: PREFIX-*",
		func(may *grant) bool { return may.nodes == nil || slices.Contains(may.nodes, "*") })
}

// checkStores names those whose sidecars may say that they are on any store.
func (r *rules) checkStores() error {
	return r.checkSidecars("may report, and answer for, any store; name its stores, as in stores: [ID]",
		func(may *grant) bool { return may.stores == nil || slices.Contains(may.stores, "*") })
}

// checkSidecars names the entries of the role sidecar that are so, in a *FileError.
func (r *rules) checkSidecars(says string, so func(*grant) bool) error {
	var problems []string
	for _, h := range slices.Concat(slices.Collect(maps.Values(r.tokens)), r.certs, r.subjects) {
		if h.may.role == RoleSidecar && so(&h.may) {
			problems = append(problems, fmt.Sprintf("%s (%s) %s", h.at, h.name, says))
		}
	}
	if problems == nil {
		return nil
	}
	slices.Sort(problems)
	return &FileError{problems}
}

// namesOf returns the names of a certificate: its common name first.
func namesOf(cert *x509.Certificate) []string {
	var names []string
	if cn := cert.Subject.CommonName; cn != "" {
		names = append(names, cn)
	}
	names = append(names, cert.DNSNames...)
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	return append(names, cert.EmailAddresses...)
}

func digestOf(token string) digest { return sha256.Sum256([]byte(token)) }

// isToken reports whether a text can be a header's value: visible ASCII.
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}
