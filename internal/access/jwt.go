package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Bounds and times of JSON Web Tokens.
const (
	defaultLeeway = 30 * time.Second
	maxLeeway     = 5 * time.Minute
	// keysEvery is how often the keys at jwks_url are fetched, and keysSoon the least time between
	// fetches after a token had an unknown key, or a fetch failed.
	keysEvery = 5 * time.Minute
	keysSoon  = 10 * time.Second
	// keysTimeout bounds one fetch.
	keysTimeout = 5 * time.Second
	// maxVerified bounds the verified tokens that are remembered. All are removed when there are
	// more.
	maxVerified = 4096
)

// signatures are the accepted algorithms of RFC 7518 and RFC 8037: those with a public key. HMAC is
// not among them, since every holder of a shared secret could sign.
var signatures = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// jwtSection is the section jwt of the file.
type jwtSection struct {
	line                       int
	issuer, audience, claim    string
	keysFile, keysURL, rootsCA string
	leeway                     time.Duration
}

func (r *reader) jwt(to **jwtSection) value {
	return value{func(n *yaml.Node, at string) {
		s := &jwtSection{line: n.Line, leeway: defaultLeeway, claim: "sub"}
		*to = s
		r.object(n, at, r.jwtKeys(s))
		if (s.keysFile == "") == (s.keysURL == "") && !r.refused(at+".jwks_file", at+".jwks_url") {
			r.refuse(n, at, "needs one of jwks_file and jwks_url, where the issuer's public keys are")
		}
		if s.keysURL != "" {
			u, err := url.Parse(s.keysURL)
			if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !listen.IsLoopback(net.JoinHostPort(u.Hostname(), "0"))) {
				r.refuse(n, at+".jwks_url", "must be https://…, or http:// to this machine: an attacker on the way could replace the keys")
			}
		}
	}, r.schema(r.jwtKeys(new(jwtSection)))}
}

func (r *reader) jwtKeys(s *jwtSection) []key {
	return []key{
		{name: "issuer", must: true, doc: "the claim iss of its tokens", value: r.text(&s.issuer)},
		{name: "audience", must: true, doc: "one of the claim aud", value: r.text(&s.audience)},
		{name: "jwks_file", doc: "file of the issuer's public keys", value: r.text(&s.keysFile)},
		{name: "jwks_url", doc: "where the issuer's public keys are", value: r.text(&s.keysURL)},
		{name: "jwks_ca", doc: "file of the authorities of that server; the system's by default", value: r.text(&s.rootsCA)},
		{name: "claim", doc: "the claim that names entries of subjects; sub by default", value: r.text(&s.claim)},
		{name: "leeway", doc: "by how much clocks may differ", value: value{func(n *yaml.Node, at string) {
			d, err := time.ParseDuration(n.Value)
			if err != nil || d < 0 || d > maxLeeway {
				r.refuse(n, at, "must be a duration from 0s to %v, not %s", maxLeeway, kindOf(n))
			}
			s.leeway = d
		}, setting.DurationSchema()}},
	}
}

// verifier verifies the tokens of one issuer. Its keys do not change.
type verifier struct {
	section  jwtSection
	roots    *x509.CertPool // the authorities of the server of jwks_url; nil: the system's
	keys     *jose.JSONWebKeySet
	unknown  *atomic.Bool // a token had a key that is not among them
	mu       sync.Mutex
	verified map[digest]verifiedClaims
}

// verifiedClaims are the claims that are used.
type verifiedClaims struct {
	subject string
	names   []string  // the values of the claim that names entries
	expires time.Time // with the leeway
}

func (b *builder) jwt(s *jwtSection) {
	v := &verifier{section: *s, unknown: new(atomic.Bool)}
	b.rules.jwt = v
	if s.rootsCA != "" {
		ca := b.files[s.rootsCA]
		roots, _, err := certificates(ca.data)
		if ca.err != nil || err != nil {
			b.refuse(s.line, "jwt.jwks_ca", "%s: %v", s.rootsCA, errors.Join(ca.err, err))
		}
		v.roots = roots
	}
	if s.keysFile == "" {
		return
	}
	f := b.files[s.keysFile]
	keys, left, err := parseKeys(f.data)
	if f.err != nil {
		err = f.err
	}
	if err != nil {
		b.refuse(s.line, "jwt.jwks_file", "%s: %v", s.keysFile, err)
		return
	}
	warnOfKeys(b.log, s.keysFile, left)
	v.keys = keys
}

// warnOfKeys names the keys of a set that are not used.
func warnOfKeys(log *slog.Logger, source string, left []error) {
	for _, err := range left {
		log.Warn("a key of a JSON Web Key Set cannot be used here, and is left out", "source", source, "error", err)
	}
}

// parseKeys reads a JSON Web Key Set with public keys for signatures. It leaves out other keys, also those of kinds that are not
// known here, as RFC 7517, section 5, has it; left says why each of these cannot be used.
func parseKeys(data []byte) (public *jose.JSONWebKeySet, left []error, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, nil, fmt.Errorf("not a JSON Web Key Set: %w", err)
	}
	public = &jose.JSONWebKeySet{}
	for i, text := range set.Keys {
		var k jose.JSONWebKey
		switch err := json.Unmarshal(text, &k); {
		case err != nil:
			left = append(left, fmt.Errorf("key %d of the set: %w", i+1, err))
		case k.IsPublic() && k.Valid() && (k.Use == "" || k.Use == "sig"):
			public.Keys = append(public.Keys, k)
		}
	}
	if len(public.Keys) == 0 {
		return nil, left, errors.Join(append(left, errors.New("it has no public key for signatures"))...)
	}
	return public, left, nil
}

// isJWT reports whether a token has the form of a signed JSON Web Token.
func isJWT(token string) bool { return strings.Count(token, ".") == 2 }

// known returns the claims of a token that was verified before and is still valid.
func (v *verifier) known(d digest) (verifiedClaims, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c, ok := v.verified[d]
	return c, ok && !time.Now().After(c.expires)
}

// verify verifies a token (RFC 7519, section 7.2). forged says that the signature is not one of the
// issuer's, so that it may be a guess.
func (v *verifier) verify(token string, d digest) (c verifiedClaims, forged bool, err error) {
	if v.keys == nil {
		return c, false, wire.Errorf(wire.Unauthorized, "the issuer's keys could not be fetched yet, so no JSON Web Token can be verified")
	}
	signed, err := jwt.ParseSigned(token, signatures)
	if err != nil {
		return c, true, wire.Errorf(wire.Unauthorized, "the token is not known here, and not an accepted JSON Web Token: %v", err)
	}
	var registered jwt.Claims
	var all map[string]any
	if id := signed.Headers[0].KeyID; id != "" && len(v.keys.Key(id)) == 0 {
		v.unknown.Store(true)
		return c, true, wire.Errorf(wire.Unauthorized, "the JSON Web Token was signed by key %s, which is not among the issuer's", shown(id))
	}
	if err := v.check(signed, &registered, &all); err != nil {
		return c, true, wire.Errorf(wire.Unauthorized, "the JSON Web Token's signature is not the issuer's")
	}
	expected := jwt.Expected{Issuer: v.section.issuer, AnyAudience: jwt.Audience{v.section.audience}, Time: time.Now()}
	if registered.Expiry == nil {
		err = errors.New("it has no exp")
	} else {
		err = registered.ValidateWithLeeway(expected, v.section.leeway)
	}
	if err != nil {
		return c, false, wire.Errorf(wire.Unauthorized, "the JSON Web Token is not accepted here: %s",
			strings.TrimPrefix(err.Error(), "go-jose/go-jose/jwt: "))
	}
	c = verifiedClaims{subject: registered.Subject, expires: registered.Expiry.Time().Add(v.section.leeway)}
	switch of := all[v.section.claim].(type) {
	case string:
		c.names = []string{of}
	case []any:
		for _, name := range of {
			if name, ok := name.(string); ok {
				c.names = append(c.names, name)
			}
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.verified == nil || len(v.verified) >= maxVerified {
		v.verified = make(map[digest]verifiedClaims)
	}
	v.verified[d] = c
	return c, false, nil
}

// check verifies the signature by the key that the token names, or by each key if it names none.
func (v *verifier) check(signed *jwt.JSONWebToken, to ...any) error {
	keys := v.keys.Keys
	if id := signed.Headers[0].KeyID; id != "" {
		keys = v.keys.Key(id)
	}
	err := errors.New("no key")
	for _, k := range keys {
		if k.Algorithm != "" && k.Algorithm != signed.Headers[0].Algorithm {
			continue
		}
		if err = signed.Claims(k.Key, to...); err == nil {
			return nil
		}
	}
	return err
}

// byJWT finds the identity of a JSON Web Token, also of a new one.
func (r *rules) byJWT(token string, d digest) (id Identity, forged bool, err error) {
	c, known := r.jwt.known(d)
	if !known {
		if c, forged, err = r.jwt.verify(token, d); err != nil {
			return Identity{}, forged, err
		}
	}
	id, err = r.byClaims(c, token, d)
	return id, false, err
}

// byClaims finds the identity of verified claims.
func (r *rules) byClaims(c verifiedClaims, token string, d digest) (Identity, error) {
	for _, h := range r.subjects {
		for _, name := range c.names {
			if name != h.name {
				continue
			}
			id := Identity{Name: h.name, Role: h.may.role, Verified: true, may: &h.may, rules: r, jwt: token, digest: d, expires: c.expires}
			if c.subject != "" {
				id.Name = c.subject
			}
			return id, nil
		}
	}
	return Identity{}, wire.Errorf(wire.Unauthorized, "the JSON Web Token is valid, and its claim %s (%s) is listed nowhere under subjects",
		shown(r.jwt.section.claim), patterns(c.names))
}

// fetched returns rules with the current keys of jwks_url.
func (r *rules) fetched(ctx context.Context, log *slog.Logger) (*rules, error) {
	v := r.jwt
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.section.keysURL, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: v.roots}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxFileBytes))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %s", resp.Status)
	}
	if err != nil {
		return nil, err
	}
	keys, left, err := parseKeys(data)
	if err != nil {
		return nil, err
	}
	if v.keys != nil && sameKeys(v.keys, keys) {
		return r, nil
	}
	warnOfKeys(log, v.section.keysURL, left)
	now := *r
	now.jwt = &verifier{section: v.section, roots: v.roots, keys: keys, unknown: v.unknown}
	return &now, nil
}

// sameKeys compares key sets by content.
func sameKeys(a, b *jose.JSONWebKeySet) bool {
	one, errOne := json.Marshal(a)
	two, errTwo := json.Marshal(b)
	return errOne == nil && errTwo == nil && string(one) == string(two)
}

// fetchKeys fetches the issuer's keys when it is time, and puts them in force.
func (a *Access) fetchKeys(ctx context.Context) {
	r := a.now.Load()
	if r.jwt == nil || r.jwt.section.keysURL == "" {
		return
	}
	age := time.Since(a.fetchedAt)
	if wanted := r.jwt.keys == nil || r.jwt.unknown.Load() || a.fetchFailed; age < keysSoon || age < keysEvery && !wanted {
		return
	}
	a.fetchedAt = time.Now()
	r.jwt.unknown.Store(false)
	now, err := r.fetched(ctx, a.log)
	a.fetchFailed = err != nil
	switch {
	case err != nil && ctx.Err() == nil:
		a.log.Warn("the keys of JSON Web Tokens cannot be fetched; the last ones stay in force", "url", r.jwt.section.keysURL, "error", err)
	case err == nil && now != r:
		a.log.Info("the keys of JSON Web Tokens have changed", "url", r.jwt.section.keysURL, "keys", len(now.jwt.keys.Keys))
		a.enforce(now)
	}
}

// noteExpiry makes the next poll find out that an identity has expired.
func (a *Access) noteExpiry(id *Identity) {
	if id.expires.IsZero() {
		return
	}
	for at := id.expires.UnixNano(); ; {
		next := a.expires.Load()
		if next != 0 && next <= at || a.expires.CompareAndSwap(next, at) {
			return
		}
	}
}
