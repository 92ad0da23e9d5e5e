package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// maxPeerTokens bounds the tokens in a file of peers' tokens: the current one, and another while
// they are rotated.
const maxPeerTokens = 2

// PeerTokens authenticates the sidecars of a fleet to each other. Sidecars of a control plane use
// signed tokens ([PeerKey]); those of --peers use the tokens of one file, a line each: they send
// the first, and accept all. Its methods are safe for concurrent use, and for nil *PeerTokens,
// which has no token.
type PeerTokens struct {
	path  string // "": there is no file
	log   *slog.Logger
	every time.Duration
	now   atomic.Pointer[peerTokens] // nil without a file
	key   *PeerKey                   // nil without a control plane
	told  *rate.Limiter              // of attempts that were refused

	guesses guesses     // where there is no Access that knows of them
	used    atomic.Bool // a peer has come in since the program started

	// The state of Run between polls.
	pending string // what the last look found, where it differs
	trouble string // why the last look was not taken, so that it is told once
}

// peerTokens is the state in force of the file.
type peerTokens struct {
	text    string // the file's
	shown   string
	digests []digest
	short   bool // one of them can be guessed
}

// peerGrant has the rights of a peer, and anyPeer is its identity.
var (
	peerGrant = grant{topics: topicsFor{Replay: {"*"}}}
	anyPeer   = Identity{Name: "peer", Verified: true, may: &peerGrant}
)

// OpenPeerTokens reads a file with one or two tokens, if path is not "". key is this sidecar's
// PeerKey, nil without a control plane. Call [PeerTokens.Run] to follow the file's changes.
func OpenPeerTokens(path string, key *PeerKey, log *slog.Logger) (*PeerTokens, error) {
	if path == "" && key == nil {
		return nil, nil
	}
	p := &PeerTokens{path: path, key: key, log: log, every: pollEvery, told: rate.NewLimiter(1, 10)}
	if path == "" {
		return p, nil
	}
	f := p.read()
	now, err := parsePeerTokens(f)
	if err != nil {
		return nil, err
	}
	p.take(now, f)
	return p, nil
}

func (p *PeerTokens) read() file {
	return readFile(p.path, maxPeerTokens*(wire.MaxTokenBytes+2)+1)
}

func parsePeerTokens(f file) (*peerTokens, error) {
	if f.err != nil {
		return nil, f.err
	}
	var tokens []string
	for line := range strings.Lines(string(f.data)) {
		if token := strings.TrimSpace(line); token != "" {
			tokens = append(tokens, token)
		}
	}
	if len(tokens) == 0 || len(tokens) > maxPeerTokens {
		return nil, fmt.Errorf("it has %d tokens; one or %d are allowed, a line each", len(tokens), maxPeerTokens)
	}
	now := &peerTokens{text: string(f.data), shown: tokens[0]}
	for i, token := range tokens {
		if len(token) > wire.MaxTokenBytes || !isToken(token) {
			return nil, fmt.Errorf("the text in line %d is no token: one has 1 to %d visible ASCII characters", i+1, wire.MaxTokenBytes)
		}
		now.digests = append(now.digests, digestOf(token))
		now.short = now.short || len(token) < shortToken
	}
	return now, nil
}

// take puts tokens in force, and warns of short ones.
func (p *PeerTokens) take(now *peerTokens, f file) {
	if now.short {
		p.log.Warn("a token of the peers is so short that it can be guessed", "file", p.path)
	}
	warnOfReadable(p.log, p.path, f)
	p.pending = now.text
	p.now.Store(now)
}

// Run follows the file until the context ends, and returns nil then. A change acts once two reads
// in a row have found it. If it is invalid, Run logs that, and the last valid tokens stay in force.
func (p *PeerTokens) Run(ctx context.Context) error {
	if p == nil || p.path == "" {
		return nil
	}
	for pause.For(ctx, p.every) {
		p.look()
	}
	return nil
}

func (p *PeerTokens) look() {
	f := p.read()
	if text := string(f.data); f.err == nil && text != p.pending {
		p.pending = text
		return
	}
	now, err := parsePeerTokens(f)
	switch {
	case err != nil:
		if err.Error() != p.trouble {
			p.log.Error("the peers' tokens stay as they are", "file", p.path, "error", err)
		}
		p.trouble = err.Error()
		return
	case now.text != p.now.Load().text:
		p.take(now, f)
		p.log.Info("the peers' tokens have changed", "file", p.path, "tokens", len(now.digests))
	}
	p.trouble = ""
}

// Authorize adds a token to a request to a peer: a token for that sidecar alone if the control
// plane has named it, since any member of the fleet can announce an address; the file's first one
// if node is "", since the settings name the address.
func (p *PeerTokens) Authorize(r *http.Request, node string) {
	token := ""
	switch {
	case p == nil:
	case node != "" && p.key != nil:
		token = p.key.Token(node)
	case node == "" && p.path != "":
		token = p.now.Load().shown
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
}

// knows reports whether the file has the token.
func (p *PeerTokens) knows(token string) bool {
	if p.path == "" {
		return false
	}
	shown, found := digestOf(token), 0
	for _, d := range p.now.Load().digests {
		found |= subtle.ConstantTimeCompare(shown[:], d[:])
	}
	return found == 1
}

// Authenticate is [Access.Authenticate], and also accepts peers, which may replay every topic and
// do nothing else.
func (p *PeerTokens) Authenticate(a *Access, next http.Handler) http.Handler {
	others := a.Authenticate(next)
	if p == nil || a == nil && p.path == "" {
		return others
	}
	search := &p.guesses
	if a != nil {
		search = &a.guesses
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := r.Header["Authorization"]
		if len(values) == 0 {
			others.ServeHTTP(w, r)
			return
		}
		token, malformed := bearer(values)
		if malformed == nil && p.key != nil && isPeerToken(token) {
			p.bySignature(w, r, token, next)
			return
		}
		known := malformed == nil && p.knows(token)
		if known && !p.used.Load() || !known && a == nil {
			if err := search.check(r.RemoteAddr); err != nil {
				httpapi.WriteError(w, r, err, p.log)
				return
			}
		}
		if !known {
			if a == nil {
				search.failed(r.Context(), r.RemoteAddr)
			}
			others.ServeHTTP(w, r)
			return
		}
		p.used.Store(true)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, anyPeer)))
	})
}

// bySignature accepts a sidecar with a signed token.
func (p *PeerTokens) bySignature(w http.ResponseWriter, r *http.Request, token string, next http.Handler) {
	node, err := p.key.Check(token)
	if err != nil {
		if p.told.Allow() {
			p.log.Warn("a peer was refused", "from", r.RemoteAddr, "reason", wire.AsError(err).Msg)
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice", error="invalid_token"`)
		httpapi.WriteError(w, r, err, p.log)
		return
	}
	id := anyPeer
	id.Name = "peer " + node
	next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, id)))
}

// Failures is [Access.Failures] of a program in which only peers have tokens.
func (p *PeerTokens) Failures() (refused, unseen int64) {
	if p == nil {
		return 0, 0
	}
	return p.guesses.failures()
}

// MayAsk checks that the sender of a request that passed Authenticate may make requests between
// sidecars: peers may, and identities that may replay some topic. If only peers authenticate, only
// they may; without any authentication every client may. The error is a *wire.Error.
func (p *PeerTokens) MayAsk(a *Access, r *http.Request) error {
	id, _ := r.Context().Value(identityKey{}).(Identity)
	switch {
	case id.may == &peerGrant || a == nil && (p == nil || p.path == ""):
		return nil
	case a == nil:
		return wire.Errorf(wire.Unauthorized, "only the other sidecars may ask this: it needs the token of --peer-token-file as Authorization: Bearer …")
	case id.may == nil || len(id.may.topics[Replay]) == 0:
		return wire.Errorf(wire.Forbidden, "%s may not replay or export any topic", shown(id.Name))
	}
	return nil
}

// Refuse answers a request that MayAsk has refused.
func (p *PeerTokens) Refuse(w http.ResponseWriter, r *http.Request, err error, log *slog.Logger) {
	if errors.Is(err, &wire.Error{Code: wire.Unauthorized}) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
		if p != nil && len(r.Header["Authorization"]) > 0 && p.told.Allow() {
			log.Warn("a peer was refused: its token is not in the file", "from", r.RemoteAddr, "file", p.path)
		}
	}
	httpapi.WriteError(w, r, err, log)
}
