package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/require"
)

// issuer signs JSON Web Tokens.
type issuer struct {
	t   testing.TB
	id  string
	key *ecdsa.PrivateKey
}

func newIssuer(t testing.TB, id string) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return &issuer{t, id, key}
}

// keys is the issuer's key set.
func (i *issuer) keys() []byte {
	i.t.Helper()
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: i.id, Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		i.t.Fatal(err)
	}
	return set
}

type claimSet = map[string]any

// sign makes a token of claims that count, and of those given.
func (i *issuer) sign(other claimSet) string {
	i.t.Helper()
	all := claimSet{"iss": "https://issuer.example", "aud": "sluice", "sub": "orders-service", "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range other {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return signed(i.t, jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, i.id, all)
}

func signed(t testing.TB, key jose.SigningKey, id string, all claimSet) string {
	t.Helper()
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", id))
	require.NoError(t, err)
	token, err := jwt.Signed(signer).Claims(all).Serialize()
	require.NoError(t, err)
	return token
}

const jwtText = `
jwt: {issuer: "https://issuer.example", audience: sluice, jwks_file: keys.json}
subjects: [{name: orders-service, publish: [orders.*]}]
`

func TestJWT(t *testing.T) {
	i, other := newIssuer(t, "one"), newIssuer(t, "one")
	f := newFolder(t)
	f.write("keys.json", i.keys())
	f.writef("auth.yaml", jwtText)
	a, _ := f.open(Sidecar)
	unsigned := func(token string) string {
		parts := strings.Split(token, ".")
		return "eyJhbGciOiJub25lIn0." + parts[1] + "."
	}
	secret := jose.SigningKey{Algorithm: jose.HS256, Key: i.keys()[:64]}
	from := 0
	for name, tc := range map[string]struct{ token, want string }{
		"valid":               {i.sign(nil), ""},
		"several audiences":   {i.sign(claimSet{"aud": []string{"other", "sluice"}}), ""},
		"expired just now":    {i.sign(claimSet{"exp": time.Now().Add(-20 * time.Second).Unix()}), ""}, // within the leeway
		"expired":             {i.sign(claimSet{"exp": time.Now().Add(-time.Minute).Unix()}), "expired"},
		"without an end":      {i.sign(claimSet{"exp": nil}), "it has no exp"},
		"not yet":             {i.sign(claimSet{"nbf": time.Now().Add(time.Hour).Unix()}), "not valid yet"},
		"of another issuer":   {i.sign(claimSet{"iss": "https://evil.example"}), "issuer"},
		"for another server":  {i.sign(claimSet{"aud": "payments"}), "audience"},
		"for nobody":          {i.sign(claimSet{"aud": nil}), "audience"},
		"of somebody else":    {i.sign(claimSet{"sub": "customers"}), `its claim "sub" (customers) is listed nowhere under subjects`},
		"forged":              {other.sign(nil), "signature is not the issuer's"},
		"with an unknown key": {newIssuer(t, "two").sign(nil), `key "two", which is not among the issuer's`},
		"unsigned":            {unsigned(i.sign(nil)), "not an accepted JSON Web Token"},
		"with a shared secret": {
			signed(t, secret, "one", claimSet{"iss": "https://issuer.example", "aud": "sluice", "sub": "orders-service"}),
			"not an accepted JSON Web Token"},
	} {
		from++
		for again := range 2 { // from memory, then
			id, err := a.Token(t.Context(), tc.token, fmt.Sprintf("127.0.0.%d:1", from))
			if tc.want == "" && (err != nil || id.Name != "orders-service" || id.May(Publish, "orders.created", "") != nil ||
				id.May(Publish, "customers", "") == nil) {
				t.Errorf("%s, %d: %+v %v", name, again, id, err)
			}
			if e := new(wire.Error); tc.want != "" && (!errors.As(err, &e) || e.Code != wire.Unauthorized || !strings.Contains(e.Msg, tc.want)) {
				t.Errorf("%s, %d: %v; want %s", name, again, err, tc.want)
			}
		}
	}
}

// Of a claim with several values each may be listed, and the token's owner is who it is about.
func TestJWTClaim(t *testing.T) {
	i := newIssuer(t, "one")
	f := newFolder(t)
	f.write("keys.json", i.keys())
	f.writef("auth.yaml", `
jwt: {issuer: "https://issuer.example", audience: sluice, jwks_file: keys.json, claim: groups, leeway: 0s}
subjects: [{name: sluice-admins, role: admin}, {name: sluice-viewers, role: viewer}]
`)
	a, _ := f.open(ControlPlane)
	token := i.sign(claimSet{"sub": "alice@example.com", "groups": []any{"staff", "sluice-viewers", 7}})
	id, err := a.Token(t.Context(), token, "127.0.0.1:1")
	if err != nil || id.Name != "alice@example.com" || id.Role != RoleViewer {
		t.Errorf("%+v %v", id, err)
	}
}

// Requests allowed by a token end when it expires, and not before.
func TestJWTExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t, "one")
		f := newFolder(t)
		f.write("keys.json", i.keys())
		f.writef("auth.yaml", jwtText)
		a, _ := f.open(Sidecar)
		var told atomic.Int64
		a.OnChange(func() { told.Add(1) })
		running, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = a.Run(running); close(done) }()
		defer func() { stop(); <-done }()

		var ends []context.Context
		for _, lasts := range []time.Duration{time.Minute, 10 * time.Minute} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer "+i.sign(claimSet{"exp": time.Now().Add(lasts).Unix()}))
			a.Authenticate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				ctx, end := a.While(r.Context(), Publish, "orders.created", "")
				t.Cleanup(end)
				ends = append(ends, ctx)
			})).ServeHTTP(httptest.NewRecorder(), r)
		}
		time.Sleep(time.Minute + 28*time.Second)
		if ends[0].Err() != nil || told.Load() != 0 {
			t.Error("the token ended before its leeway did")
		}
		time.Sleep(5 * time.Second)
		if ends[0].Err() == nil || ends[1].Err() != nil || told.Load() != 1 {
			t.Errorf("after the first token's end: %v, %v, told %d times", ends[0].Err(), ends[1].Err(), told.Load())
		}
		time.Sleep(10 * time.Minute)
		if ends[1].Err() == nil {
			t.Error("the second token did not end")
		}
	})
}

// Keys at a URL are fetched when a token has one that is not known, and removed keys do not count
// any more.
func TestJWTKeysRotate(t *testing.T) {
	old, next := newIssuer(t, "old"), newIssuer(t, "new")
	var now atomic.Pointer[issuer]
	now.Store(old)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(now.Load().keys()) }))
	defer server.Close()
	f := newFolder(t)
	f.writef("auth.yaml", strings.Replace(jwtText, "jwks_file: keys.json", "jwks_url: %q", 1), server.URL)
	a, _ := f.open(Sidecar)
	id, err := a.Token(t.Context(), old.sign(nil), "127.0.0.1:1")
	require.NoError(t, err)
	now.Store(next)
	if _, err := a.Token(t.Context(), next.sign(nil), "127.0.0.1:1"); err == nil {
		t.Error("a key counts that was not fetched")
	}
	a.fetchedAt = a.fetchedAt.Add(-keysSoon)
	a.fetchKeys(t.Context())
	if _, err := a.Token(t.Context(), next.sign(nil), "127.0.0.1:1"); err != nil {
		t.Error(err)
	}
	if _, err := a.Renew(&id); err == nil {
		t.Error("a key still counts that is gone")
	}
	// A failed fetch leaves the keys as they are.
	server.Close()
	a.fetchedAt = a.fetchedAt.Add(-keysEvery)
	a.fetchKeys(t.Context())
	if _, err := a.Token(t.Context(), next.sign(nil), "127.0.0.1:1"); err != nil {
		t.Error(err)
	}
}

// One key of a kind that is not known here does not take the others away.
func TestJWTKeysOfOtherKinds(t *testing.T) {
	i := newIssuer(t, "one")
	set := strings.Replace(string(i.keys()), `"keys":[`,
		`"keys":[{"kty":"OKP","crv":"X25519","x":"3p7bfXt9wbTTW2HC7OQ1Nz-DQ8hbeGdNrfx-FG-IK08","kid":"enc"},`, 1)
	f := newFolder(t)
	f.write("keys.json", []byte(set))
	f.writef("auth.yaml", jwtText)
	log := new(lockedbuffer.Buffer)
	a, err := Open(f.path("auth.yaml"), Sidecar, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	if _, err := a.Token(t.Context(), i.sign(nil), "127.0.0.1:1"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "key 1 of the set") || strings.Contains(log.String(), "key 2") {
		t.Error(log)
	}
}

// Without the keys the program starts, and says what is missing.
func TestJWTWithoutKeys(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", strings.Replace(jwtText, "jwks_file: keys.json", "jwks_url: %q", 1), "http://127.0.0.1:1/keys")
	log := new(lockedbuffer.Buffer)
	a, err := Open(f.path("auth.yaml"), Sidecar, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	_, err = a.Token(t.Context(), newIssuer(t, "one").sign(nil), "127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "could not be fetched yet") || !strings.Contains(log.String(), "cannot be fetched") {
		t.Error(err, log)
	}
}

func TestJWTSectionRefuses(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"jwt: {issuer: a}", "line 1: jwt.audience: is missing"},
		{"jwt: {issuer: a, audience: b}", "line 1: jwt: needs one of jwks_file and jwks_url, where the issuer's public keys are"},
		{"jwt: {issuer: a, audience: b, jwks_url: 'http://issuer.example/keys'}", "jwt.jwks_url: must be https://…, or http:// to this machine"},
		{"jwt: {issuer: a, audience: b, jwks_file: k, leeway: 1h}", "jwt.leeway: must be a duration from 0s to 5m0s"},
		{"subjects: []", "subjects: needs the section jwt"},
	} {
		_, err := parse([]byte(tc.text), Sidecar)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v; want %s", tc.text, err, tc.want)
		}
	}
	f := newFolder(t)
	f.writef("auth.yaml", jwtText)
	f.writef("keys.json", `{"keys":[]}`)
	if _, err := Open(f.path("auth.yaml"), Sidecar, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "it has no public key for signatures") {
		t.Error(err)
	}
}

func BenchmarkJWT(b *testing.B) {
	i := newIssuer(b, "one")
	f := newFolder(b)
	f.write("keys.json", i.keys())
	f.writef("auth.yaml", jwtText)
	a, _ := f.open(Sidecar)
	token := i.sign(nil)
	for b.Loop() {
		if _, err := a.Token(b.Context(), token, "127.0.0.1:1"); err != nil {
			b.Fatal(err)
		}
	}
}
