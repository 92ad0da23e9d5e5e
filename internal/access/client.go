package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// ClientConfig says how a client authenticates itself and its server. Each field but TLS is a file,
// and may be "". Files are read again: certificates for each connection, the token for each call.
type ClientConfig struct {
	TLS       bool   // use TLS also where no other field asks for it
	CA        string // the authorities of the server's certificate; "" for the system's
	Cert, Key string // the client's own
	TokenFile string
}

// Client makes connections as its ClientConfig says. It is safe for concurrent use. A nil Client
// has no TLS and no token.
type Client struct {
	cfg ClientConfig

	mu    sync.Mutex
	tls   *tls.Config // as the files were when they last were whole
	token string
}

// Open checks the files, so that mistakes in them are found at the start.
func (c ClientConfig) Open() (*Client, error) {
	if c == (ClientConfig{}) {
		return nil, nil
	}
	if (c.Cert == "") != (c.Key == "") {
		return nil, errors.New("a client certificate needs two files: the certificate and its key")
	}
	config, tlsErr := c.readTLS()
	token, tokenErr := c.readToken()
	if err := errors.Join(tlsErr, tokenErr); err != nil {
		return nil, err
	}
	return &Client{cfg: c, tls: config, token: token}, nil
}

// in has the files' names relative to a folder.
func (c ClientConfig) in(folder string) ClientConfig {
	for _, name := range []*string{&c.CA, &c.Cert, &c.Key, &c.TokenFile} {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(folder, *name)
		}
	}
	return c
}

// ForTLS is the configuration without the token.
func (c ClientConfig) ForTLS() ClientConfig {
	c.TokenFile = ""
	return c
}

// Secure reports whether connections use TLS.
func (c ClientConfig) Secure() bool { return c.TLS || c.CA != "" || c.Cert != "" }

// CheckDial refuses an address on another machine that would be dialled without TLS, unless
// insecure. name is that of the address's setting, and section that of ClientConfig in the file.
func (c ClientConfig) CheckDial(name, addr, section string, insecure bool) error {
	if insecure || c.Secure() || listen.IsLoopback(addr) {
		return nil
	}
	return fmt.Errorf("%s: %s is not on this machine, and there is no TLS to it: tokens and events would be sent unencrypted; "+
		"give %s.ca or %s.tls in --auth-config, or --insecure for a network that encrypts by itself", name, addr, section, section)
}

// Secure reports whether connections use TLS.
func (c *Client) Secure() bool { return c != nil && c.cfg.Secure() }

// DialOptions are the options of a gRPC connection. It reads the files again for each handshake.
func (c *Client) DialOptions() []grpc.DialOption {
	transport := insecure.NewCredentials()
	if c.Secure() {
		transport = freshCredentials{TransportCredentials: credentials.NewTLS(c.config()), client: c}
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if c != nil && c.cfg.TokenFile != "" {
		options = append(options, grpc.WithPerRPCCredentials(tokenCredentials{c}))
	}
	return options
}

// freshCredentials uses the current files for each handshake.
type freshCredentials struct {
	credentials.TransportCredentials // for all but the client's handshake
	client                           *Client
}

func (f freshCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(f.client.config()).ClientHandshake(ctx, authority, conn)
}

func (f freshCredentials) Clone() credentials.TransportCredentials {
	return freshCredentials{TransportCredentials: f.TransportCredentials.Clone(), client: f.client}
}

// tokenCredentials send the token with each call.
type tokenCredentials struct{ client *Client }

func (t tokenCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if token := t.client.Token(); token != "" {
		return map[string]string{"authorization": "Bearer " + token}, nil
	}
	return nil, nil
}

// RequireTransportSecurity allows a token in clear text only if there is no TLS at all: within one
// machine, or on a network that encrypts by itself.
func (t tokenCredentials) RequireTransportSecurity() bool { return t.client.Secure() }

// Token returns the token in its file, or the last one while the file cannot be read; "" without a
// file.
func (c *Client) Token() string {
	if c == nil || c.cfg.TokenFile == "" {
		return ""
	}
	token, err := c.cfg.readToken()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.token = token
	}
	return c.token
}

// UseIn makes a transport connect like the client. Its https requests are then HTTP/1.1.
func (c *Client) UseIn(t *http.Transport) {
	if !c.Secure() {
		return
	}
	dial := t.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		config := c.config()
		config.ServerName = host
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return secured, nil
	}
}

// config returns the TLS configuration of the current files, or of the last valid ones.
func (c *Client) config() *tls.Config {
	config, err := c.cfg.readTLS()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.tls = config
	}
	return c.tls.Clone()
}

func (c ClientConfig) readTLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		f := readFile(c.CA, maxFileBytes)
		if f.err != nil {
			return nil, f.err
		}
		var err error
		if config.RootCAs, _, err = certificates(f.data); err != nil {
			return nil, fmt.Errorf("%s: %w", c.CA, err)
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("client certificate %s and key %s: %w", c.Cert, c.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (c ClientConfig) readToken() (string, error) {
	if c.TokenFile == "" {
		return "", nil
	}
	f := readFile(c.TokenFile, wire.MaxTokenBytes+2)
	token := strings.TrimSpace(string(f.data))
	switch {
	case f.err != nil:
		return "", f.err
	case token == "" || len(token) > wire.MaxTokenBytes || !isToken(token):
		return "", fmt.Errorf("%s holds no token: one has 1 to %d visible ASCII characters", c.TokenFile, wire.MaxTokenBytes)
	}
	return token, nil
}
