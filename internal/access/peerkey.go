package access

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// The peers of a control plane authenticate by tokens that are for one target and a short time:
//
//	sluice1 . credential . signature . proof . signature
//
// The credential has a node id, its public key and an expiry, signed by the control plane. The
// proof has the target's node id and an expiry; the sidecar has signed it and all before it. All
// five are text, the last four base64url of JSON or of an Ed25519 signature. The receiver of a
// token cannot use it: neither at other sidecars, which are not its target, nor at the sender.
const (
	// PeerCredentialLife is the life of a credential, PeerCredentialRenew the time after which it
	// is renewed.
	PeerCredentialLife  = 5 * time.Minute
	PeerCredentialRenew = 2 * time.Minute
	// peerTokenLife is the life of a token.
	peerTokenLife = time.Minute
	// peerSkew is by how much the clocks of two machines may differ.
	peerSkew = time.Minute

	peerTokenKind   = "sluice1."
	maxPeerToken    = 8 << 10
	credentialSaid  = "sluice peer credential\n" // is signed before the text, so that it
	proofSaid       = "sluice peer token\n"      // cannot be taken for another
	peerTokenPieces = 4
)

// PeerSeedBytes is the size of a PeerIssuer's secret.
const PeerSeedBytes = ed25519.SeedSize

// PeerIssuer signs the credentials of sidecars, at a control plane.
type PeerIssuer struct{ key ed25519.PrivateKey }

// NewPeerIssuer makes the issuer of a secret. Issuers of one secret are equal.
func NewPeerIssuer(seed []byte) (*PeerIssuer, error) {
	if len(seed) != PeerSeedBytes {
		return nil, fmt.Errorf("the secret of the peers' credentials has %d bytes; want %d", len(seed), PeerSeedBytes)
	}
	return &PeerIssuer{ed25519.NewKeyFromSeed(seed)}, nil
}

// Public is the key that verifies the issuer's credentials.
func (i *PeerIssuer) Public() []byte { return i.key.Public().(ed25519.PublicKey) }

type peerCredential struct {
	Node  string `json:"node"`
	Key   []byte `json:"key"`
	Until int64  `json:"until"` // seconds since the epoch
}

// Issue signs a credential of a sidecar's public key.
func (i *PeerIssuer) Issue(node string, key []byte) (string, error) {
	if len(key) != ed25519.PublicKeySize {
		return "", fmt.Errorf("a peer key has %d bytes; want %d", len(key), ed25519.PublicKeySize)
	}
	return signedText(i.key, credentialSaid, "", peerCredential{Node: node, Key: key, Until: time.Now().Add(PeerCredentialLife).Unix()}), nil
}

// signedText appends a statement to a text, and a signature of both.
func signedText(key ed25519.PrivateKey, said, text string, statement any) string {
	body, err := json.Marshal(statement)
	if err != nil {
		panic("access: " + err.Error()) // strings, bytes and numbers
	}
	text += base64.RawURLEncoding.EncodeToString(body)
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(said+text)))
}

// PeerKey is a sidecar's key, its credential, and the keys that verify others' credentials. It is
// safe for concurrent use.
type PeerKey struct {
	node string
	key  ed25519.PrivateKey

	mu         sync.Mutex
	credential string
	until      time.Time // of the credential
	issuers    []peerIssuerKey
}

// peerIssuerKey verifies credentials. A replaced one stays valid as long as the credentials that it
// has signed.
type peerIssuerKey struct {
	key   ed25519.PublicKey
	until time.Time // zero: it is in use
}

// NewPeerKey makes the key of a sidecar.
func NewPeerKey(node string) (*PeerKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return &PeerKey{node: node, key: key}, err
}

// Public is the sidecar's public key, for the control plane.
func (k *PeerKey) Public() []byte { return k.key.Public().(ed25519.PublicKey) }

// Take puts a credential and the key of its issuer in force.
func (k *PeerKey) Take(credential string, issuer []byte) error {
	c, err := openCredential(credential, []ed25519.PublicKey{issuer})
	switch {
	case err != nil:
		return err
	case c.Node != k.node || !bytes.Equal(c.Key, k.Public()):
		return fmt.Errorf("the peer credential is %q's, with another key than this sidecar's", c.Node)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.credential, k.until = credential, time.Unix(c.Until, 0)
	kept := []peerIssuerKey{{key: issuer}}
	for _, old := range k.issuers {
		if old.until.IsZero() {
			old.until = time.Now().Add(PeerCredentialLife + peerSkew)
		}
		if !bytes.Equal(old.key, issuer) && time.Now().Before(old.until) {
			kept = append(kept, old)
		}
	}
	k.issuers = kept
	return nil
}

type peerProof struct {
	For   string `json:"for"`
	Until int64  `json:"until"`
}

// Token returns a token for one other sidecar; "" while this sidecar has no valid credential.
func (k *PeerKey) Token(target string) string {
	k.mu.Lock()
	credential, until := k.credential, k.until
	k.mu.Unlock()
	now := time.Now()
	if credential == "" || !now.Before(until) {
		return ""
	}
	return peerTokenKind + signedText(k.key, proofSaid, credential+".", peerProof{For: target, Until: now.Add(peerTokenLife).Unix()})
}

// isPeerToken reports whether a token has this form.
func isPeerToken(token string) bool { return strings.HasPrefix(token, peerTokenKind) }

// Check returns the sidecar of a token. The error is a *wire.Error with unauthorized.
func (k *PeerKey) Check(token string) (node string, err error) {
	if node, err = k.check(token); err != nil {
		return "", wire.Errorf(wire.Unauthorized, "the peer token is not accepted here: %v", err)
	}
	return node, nil
}

func (k *PeerKey) check(token string) (node string, err error) {
	pieces := strings.Split(strings.TrimPrefix(token, peerTokenKind), ".")
	if len(token) > maxPeerToken || !isPeerToken(token) || len(pieces) != peerTokenPieces {
		return "", errors.New("it has not the form of one")
	}
	var proof peerProof
	if err := readPiece(pieces[2], &proof); err != nil {
		return "", err
	}
	if proof.For != k.node { // before signatures, which take long
		return "", fmt.Errorf("it is for sidecar %s, and this is %s", shown(proof.For), shown(k.node))
	}
	if err := checkUntil(proof.Until, peerTokenLife); err != nil {
		return "", err
	}
	credential := pieces[0] + "." + pieces[1]
	c, err := openCredential(credential, k.known())
	if err != nil {
		return "", err
	}
	if !verify(c.Key, proofSaid, credential+"."+pieces[2], pieces[3]) {
		return "", errors.New("it is not signed by the sidecar that its credential names")
	}
	return c.Node, nil
}

// known returns the valid keys of issuers.
func (k *PeerKey) known() (keys []ed25519.PublicKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range k.issuers {
		if i.until.IsZero() || time.Now().Before(i.until) {
			keys = append(keys, i.key)
		}
	}
	return keys
}

// openCredential verifies and reads a credential.
func openCredential(text string, issuers []ed25519.PublicKey) (c peerCredential, err error) {
	body, signature, _ := strings.Cut(text, ".")
	if err := readPiece(body, &c); err != nil {
		return c, err
	}
	if err := checkUntil(c.Until, PeerCredentialLife); err != nil {
		return c, err
	}
	if len(c.Key) != ed25519.PublicKeySize {
		return c, errors.New("its credential has no key")
	}
	for _, issuer := range issuers {
		if len(issuer) == ed25519.PublicKeySize && verify(issuer, credentialSaid, body, signature) {
			return c, nil
		}
	}
	return c, errors.New("no control plane that is known here signed its credential")
}

func readPiece(text string, into any) error {
	body, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return errors.New("it has not the form of one")
	}
	return nil
}

// checkUntil refuses an expired time, and one too far in the future.
func checkUntil(until int64, life time.Duration) error {
	left := time.Until(time.Unix(until, 0))
	switch {
	case left < -peerSkew:
		return errors.New("it has expired, or the clocks of the two differ by more than a minute")
	case left > life+peerSkew:
		return errors.New("its lifetime is longer than allowed, or the clocks of the two differ by more than a minute")
	}
	return nil
}

func verify(key ed25519.PublicKey, said, text, signature string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	return err == nil && ed25519.Verify(key, []byte(said+text), raw)
}
