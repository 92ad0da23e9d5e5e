package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/require"
)

// Tokens that tests use.
const (
	aliceToken = "alice-0123456789abcdef"
	nodeToken  = "node-0123456789abcdef"
)

func sumOf(token string) string {
	d := digestOf(token)
	return hex.EncodeToString(d[:])
}

// folder is where a test's files are.
type folder struct {
	t   testing.TB
	dir string
}

func newFolder(t testing.TB) folder { return folder{t, t.TempDir()} }

func (f folder) path(name string) string { return filepath.Join(f.dir, name) }

// write replaces a file at once, as an operator should.
func (f folder) write(name string, data []byte) {
	f.t.Helper()
	temp := f.path(name + ".new")
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(temp, f.path(name)); err != nil {
		f.t.Fatal(err)
	}
}

func (f folder) writef(name, format string, args ...any) {
	f.t.Helper()
	f.write(name, fmt.Appendf(nil, format, args...))
}

// open opens auth.yaml, and returns what was logged since with it.
func (f folder) open(p Program) (*Access, *lockedbuffer.Buffer) {
	f.t.Helper()
	log := new(lockedbuffer.Buffer)
	a, err := Open(f.path("auth.yaml"), p, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		f.t.Fatal(err)
	}
	return a, log
}

// authority issues certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	ca := &authority{t: t}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca.cert, ca.key, ca.pem, _ = issue(t, template, nil, nil)
	return ca
}

// issue makes a certificate for name, for servers on loopback and for clients.
func (ca *authority) issue(name string) (cert, key []byte) {
	ca.t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	_, _, cert, key = issue(ca.t, template, ca.cert, ca.key)
	return cert, key
}

var serials struct {
	sync.Mutex
	last int64
}

func issue(t testing.TB, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, []byte,
	[]byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	if parent == nil {
		parent, signer = template, key
	}
	serials.Lock()
	serials.last++
	template.SerialNumber = big.NewInt(serials.last)
	serials.Unlock()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(30*24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return cert, key,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}
