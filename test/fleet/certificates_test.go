package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// secrets is a folder with an operator's files for --auth-config: an authority and the certificates
// that it issues, tokens and the file itself.
type secrets struct {
	dir  string
	cert *x509.Certificate // of the authority
	key  *ecdsa.PrivateKey
}

func newSecrets(t *testing.T) *secrets {
	t.Helper()
	s := &secrets{dir: t.TempDir()}
	s.cert, s.key = s.issue(t, "ca", &x509.Certificate{
		Subject: pkix.Name{CommonName: "the test's authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return s
}

// path is the path of a file in the folder.
func (s *secrets) path(name string) string { return filepath.Join(s.dir, name) }

var serials atomic.Int64

// issue writes name.pem and name.key, which the authority signs if there is one already.
func (s *secrets) issue(t *testing.T, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	parent, signer := s.cert, s.key
	if parent == nil {
		parent, signer = template, key
	}
	template.SerialNumber = big.NewInt(serials.Add(1))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(30*24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	testkit.Write(t, s.path(name+".pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	testkit.Write(t, s.path(name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	return cert, key
}

// issueFor issues a certificate for a server on loopback, or for a client.
func (s *secrets) issueFor(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	cert, _ := s.issue(t, name, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return cert
}

// token makes a token, with a file of its own.
func (s *secrets) token(t *testing.T, name string) string {
	t.Helper()
	token := name + "-" + rand.Text()
	testkit.Write(t, s.path(name+".token"), token+"\n")
	return token
}

func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// tls is the configuration of a client that trusts the authority.
func (s *secrets) tls() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(s.cert)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

func (s *secrets) client(t *testing.T) *http.Client {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: s.tls()}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// serial is the serial number of the certificate that a server shows now.
func (s *secrets) serial(t *testing.T, addr string) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, s.tls())
	require.NoError(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}
