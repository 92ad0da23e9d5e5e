package access

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

func newPeerIssuer(t testing.TB, secret byte) *PeerIssuer {
	t.Helper()
	i, err := NewPeerIssuer(bytes.Repeat([]byte{secret}, PeerSeedBytes))
	require.NoError(t, err)
	return i
}

// vouched is the key of a sidecar that an issuer vouches for.
func vouched(t testing.TB, i *PeerIssuer, node string) *PeerKey {
	t.Helper()
	k, err := NewPeerKey(node)
	require.NoError(t, err)
	renew(t, i, k)
	return k
}

func renew(t testing.TB, i *PeerIssuer, k *PeerKey) {
	t.Helper()
	credential, err := i.Issue(k.node, k.Public())
	if err == nil {
		err = k.Take(credential, i.Public())
	}
	require.NoError(t, err)
}

func refusedPeer(t *testing.T, what string, k *PeerKey, token, says string) {
	t.Helper()
	node, err := k.Check(token)
	if !errors.Is(err, &wire.Error{Code: wire.Unauthorized}) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: it is %q's, %v; want %q", what, node, err, says)
	}
}

// A sidecar joins with its own credential and announces an address of its own: what others show it
// there opens no other sidecar.
func TestAPeerTokenIsForOneTarget(t *testing.T) {
	cp := newPeerIssuer(t, 1)
	a, b, mallory := vouched(t, cp, "a"), vouched(t, newPeerIssuer(t, 1), "b"), vouched(t, cp, "mallory")
	if node, err := b.Check(a.Token("b")); err != nil || node != "a" {
		t.Fatalf("%q, %v", node, err)
	}
	stolen := a.Token("mallory")
	if node, err := mallory.Check(stolen); err != nil || node != "a" {
		t.Fatalf("%q, %v", node, err)
	}
	refusedPeer(t, "shown to another", b, stolen, `it is for sidecar "mallory", and this is "b"`)
	refusedPeer(t, "shown back", a, stolen, `it is for sidecar "mallory", and this is "a"`)

	// The credential of a, which mallory has seen, with a proof of mallory's own.
	pieces := strings.Split(stolen, ".")
	credential := pieces[1] + "." + pieces[2]
	proof := peerProof{For: "b", Until: time.Now().Add(peerTokenLife).Unix()}
	refusedPeer(t, "another's credential", b, peerTokenKind+signedText(mallory.key, proofSaid, credential+".", proof),
		"not signed by the sidecar that its credential names")
	refusedPeer(t, "another's credential, and its own signature", b,
		peerTokenKind+signedText(mallory.key, credentialSaid, credential+".", proof), "not signed by")

	// A credential that mallory has signed.
	own := signedText(mallory.key, credentialSaid, "", peerCredential{Node: "a", Key: mallory.Public(),
		Until: time.Now().Add(time.Minute).Unix()})
	refusedPeer(t, "a credential of its own making", b, peerTokenKind+signedText(mallory.key, proofSaid, own+".", proof),
		"no control plane that is known here signed")
	refusedPeer(t, "a credential of another fleet", b, vouched(t, newPeerIssuer(t, 2), "a").Token("b"),
		"no control plane that is known here signed")

	for _, token := range []string{
		"", "sluice1.", "sluice1....", "x" + a.Token("b"), a.Token("b") + ".x", strings.Replace(a.Token("b"), ".", ".!", 1),
		"sluice1." + strings.Repeat("a.", 3) + strings.Repeat("a", maxPeerToken),
		"sluice1." + strings.Repeat(base64.RawURLEncoding.EncodeToString([]byte(`{"for":"b","until":99999999999,"key":"AA=="}`))+".", 3) + "e30",
	} {
		refusedPeer(t, "no token", b, token, "is not accepted here")
	}
	if err := b.Take(credential, cp.Public()); err == nil {
		t.Error("a sidecar takes another's credential for its own")
	}
}

func TestPeerTokensLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := newPeerIssuer(t, 1)
		a, b := vouched(t, cp, "a"), vouched(t, cp, "b")
		token := a.Token("b")
		time.Sleep(peerTokenLife + peerSkew)
		if _, err := b.Check(token); err != nil {
			t.Errorf("at its end: %v", err)
		}
		time.Sleep(time.Second)
		refusedPeer(t, "after its end", b, token, "it has expired")
		last := a.Token("b")
		time.Sleep(PeerCredentialLife - peerTokenLife - peerSkew)
		if token := a.Token("b"); token != "" {
			t.Error("a sidecar that nobody vouches for any more shows a token")
		}
		refusedPeer(t, "after the credential's end", b, last, "it has expired")

		// Another key of the control planes: what the old one has signed counts until it lapses, as
		// not all sidecars hear of it at once.
		renew(t, cp, a)
		renew(t, cp, b)
		renew(t, newPeerIssuer(t, 2), b)
		if _, err := b.Check(a.Token("b")); err != nil {
			t.Errorf("signed with the key before: %v", err)
		}
		renew(t, cp, a)
		time.Sleep(PeerCredentialLife - time.Second)
		later := a.Token("b")
		time.Sleep(peerSkew + time.Second)
		refusedPeer(t, "long after the key was replaced", b, later, "no control plane that is known here signed")

		long := signedText(newPeerIssuer(t, 2).key, credentialSaid, "",
			peerCredential{Node: "a", Key: a.Public(), Until: time.Now().Add(time.Hour).Unix()})
		refusedPeer(t, "a credential for an hour", b, peerTokenKind+signedText(a.key, proofSaid, long+".",
			peerProof{For: "b", Until: time.Now().Unix()}), "longer than allowed")
		renew(t, newPeerIssuer(t, 2), a)
		a.mu.Lock()
		credential := a.credential
		a.mu.Unlock()
		refusedPeer(t, "a token for an hour", b, peerTokenKind+signedText(a.key, proofSaid, credential+".",
			peerProof{For: "b", Until: time.Now().Add(time.Hour).Unix()}), "longer than allowed")
	})
}

// Whom the control plane names is never shown the token of the file, and the file's peers are not
// shown what is for others.
func TestWhichTokenIsShown(t *testing.T) {
	cp := newPeerIssuer(t, 1)
	a, b := vouched(t, cp, "a"), vouched(t, cp, "b")
	f := newFolder(t)
	f.writef("peers", "first-token-of-peers\n")
	f.writef("auth.yaml", peersSection)
	file, _ := f.open(Sidecar)
	f.writef("auth.yaml", "tokens: [{name: app, sha256: %s, publish: ['*']}]\n", sumOf("app"))
	access, _ := f.open(Sidecar)
	shows := func(a *Access, key *PeerKey, node string) string {
		r := httptest.NewRequest("GET", "/", nil)
		a.AuthorizePeer(r, node, key)
		return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	unvouched, err := NewPeerKey("c")
	require.NoError(t, err)
	for _, tc := range []struct {
		what  string
		file  *Access
		key   *PeerKey
		node  string
		shown string // "signed": by the key
	}{
		{"a control plane", nil, a, "b", "signed"},
		{"a control plane, to one of --peers", nil, a, "", ""},
		{"both", file, a, "b", "signed"},
		{"both, to one of --peers", file, a, "", "first-token-of-peers"},
		{"a file", file, nil, "", "first-token-of-peers"},
		{"neither", nil, nil, "b", ""},
		{"a control plane that says nothing", file, unvouched, "b", ""},
	} {
		got := shows(tc.file, tc.key, tc.node)
		if tc.shown == "signed" {
			if node, err := b.Check(got); err != nil || node != "a" {
				t.Errorf("%s: %q, %v", tc.what, node, err)
			}
		} else if got != tc.shown {
			t.Errorf("%s shows %q", tc.what, got)
		}
	}
	for token, want := range map[string]int{"": 401, "app": 403, a.Token("b"): 200, a.Token("a"): 401, "first-token-of-peers": 401} {
		if got := as(asker(access, b), token); got != want {
			t.Errorf("by signatures, as %.20q: %d, want %d", token, got, want)
		}
	}
	for token, want := range map[string]int{"": 200, "whatever": 200, a.Token("a"): 200} {
		if got := as(asker(nil, b), token); got != want {
			t.Errorf("without authentication, as %.20q: %d, want %d", token, got, want)
		}
	}
}

func FuzzPeerToken(f *testing.F) {
	k := vouched(f, newPeerIssuer(f, 1), "a")
	f.Add(k.Token("a"))
	f.Add("sluice1.a.b.c.d")
	f.Fuzz(func(t *testing.T, token string) {
		node, err := k.Check(token)
		if err == nil && node != "a" {
			t.Fatalf("%q lets %q in", token, node)
		}
	})
}

func BenchmarkPeerToken(b *testing.B) {
	cp := newPeerIssuer(b, 1)
	x, y := vouched(b, cp, "x"), vouched(b, cp, "y")
	b.Run("make", func(b *testing.B) {
		for b.Loop() {
			x.Token("y")
		}
	})
	token := x.Token("y")
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if _, err := y.Check(token); err != nil {
				b.Fatal(err)
			}
		}
	})
}
