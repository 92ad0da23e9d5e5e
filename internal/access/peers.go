package access

import (
	"context"
	"net/http"
	"strings"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// maxPeerTokens bounds the tokens in a file of peers' tokens: the current one, and another while
// they are rotated.
const maxPeerTokens = 2

// peerTokens are the tokens that the sidecars of --peers share: they send the first, and accept
// all. Sidecars of a control plane use signed tokens instead ([PeerKey]).
type peerTokens struct {
	shown   string
	digests map[digest]bool
}

// peerGrant has the rights of a peer, and anyPeer is its identity.
var (
	peerGrant = grant{topics: topicsFor{Replay: {"*"}}}
	anyPeer   = Identity{Name: "peer", Verified: true, may: &peerGrant}
)

// peers reads the file with the tokens, a line each.
func (b *builder) peers(name string) {
	const at = "peers.token_file"
	f := b.files[name]
	if f.err != nil {
		b.refuse(0, at, "%v", f.err)
		return
	}
	var tokens []string
	for line := range strings.Lines(string(f.data)) {
		if token := strings.TrimSpace(line); token != "" {
			tokens = append(tokens, token)
		}
	}
	if len(tokens) == 0 || len(tokens) > maxPeerTokens {
		b.refuse(0, at, "%s has %d tokens; one or %d are allowed, a line each", name, len(tokens), maxPeerTokens)
		return
	}
	p := &peerTokens{shown: tokens[0], digests: make(map[digest]bool)}
	for i, token := range tokens {
		if len(token) > wire.MaxTokenBytes || !isToken(token) {
			b.refuse(0, at, "token %d of %s is none: one has 1 to %d visible ASCII characters", i+1, name, wire.MaxTokenBytes)
		}
		if len(token) < shortToken {
			b.log.Warn("a token of the peers is so short that it can be guessed", "file", name)
		}
		p.digests[digestOf(token)] = true
	}
	warnOfReadable(b.log, name, f)
	b.rules.peerTokens = p
}

// peerTokens are the tokens in force; nil without.
func (a *Access) peerTokens() *peerTokens {
	if a == nil {
		return nil
	}
	return a.now.Load().peerTokens
}

// AuthorizePeer adds a token to a request to a peer: a token of key for that sidecar alone if the
// control plane has named it, since any member of the fleet can announce an address; that of the
// file if node is "", since the settings name the address.
func (a *Access) AuthorizePeer(r *http.Request, node string, key *PeerKey) {
	token := ""
	switch tokens := a.peerTokens(); {
	case node != "" && key != nil:
		token = key.Token(node)
	case node == "" && tokens != nil:
		token = tokens.shown
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
}

// AuthenticatePeers is [Access.Authenticate], and also accepts peers, which may replay every topic
// and do nothing else. key is this sidecar's; nil without a control plane.
func (a *Access) AuthenticatePeers(key *PeerKey, next http.Handler, open ...string) http.Handler {
	others := a.Authenticate(next, open...)
	if !a.Authenticates() && a.peerTokens() == nil {
		return others
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := r.Header["Authorization"]
		if len(values) == 0 {
			others.ServeHTTP(w, r)
			return
		}
		token, malformed := bearer(values)
		if malformed == nil && key != nil && isPeerToken(token) {
			a.bySignature(w, r, key, token, next)
			return
		}
		tokens := a.peerTokens()
		known := malformed == nil && tokens != nil && tokens.digests[digestOf(token)]
		if !known && a.Authenticates() {
			others.ServeHTTP(w, r) // which looks at the token by itself
			return
		}
		if !known || !a.peerCame.Load() {
			if err := a.guesses.check(r.RemoteAddr); err != nil {
				httpapi.WriteError(w, r, err, a.log)
				return
			}
		}
		if !known {
			a.guesses.failed(r.Context(), r.RemoteAddr)
			others.ServeHTTP(w, r)
			return
		}
		a.peerCame.Store(true)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, anyPeer)))
	})
}

// bySignature accepts a sidecar with a signed token.
func (a *Access) bySignature(w http.ResponseWriter, r *http.Request, key *PeerKey, token string, next http.Handler) {
	node, err := key.Check(token)
	if err != nil {
		a.Challenge(w, r, err)
		return
	}
	id := anyPeer
	id.Name = "peer " + node
	next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, id)))
}

// PeerMayAsk checks that the sender of a request that passed AuthenticatePeers may make requests
// between sidecars: peers may, and identities that may replay some topic. If only peers
// authenticate, only they may; without any authentication every client may. The error is a
// *wire.Error.
func (a *Access) PeerMayAsk(r *http.Request) error {
	id, _ := r.Context().Value(identityKey{}).(Identity)
	switch {
	case id.may == &peerGrant || !a.Authenticates() && a.peerTokens() == nil:
		return nil
	case !a.Authenticates():
		return wire.Errorf(wire.Unauthorized,
			"only the other sidecars may ask this: it needs a token of peers.token_file as Authorization: Bearer …")
	case id.may == nil || len(id.may.topics[Replay]) == 0:
		return wire.Errorf(wire.Forbidden, "%s may not replay or export any topic", shown(id.Name))
	}
	return nil
}
