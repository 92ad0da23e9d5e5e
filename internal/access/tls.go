package access

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/sluice-bus/sluice/internal/listen"
)

// protocols are the protocols of a server; gRPC needs HTTP/2.
var protocols = []string{"h2", "http/1.1"}

// TLS is the configuration of a server that uses the certificates in force at each handshake; nil
// if the file has no section tls. With a client_ca, client certificates are optional, and verified
// if they are sent: a client without one needs a token.
func (a *Access) TLS() *tls.Config {
	if a == nil || a.now.Load().tls == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return a.now.Load().tls, nil
		},
	}
}

// Listener puts TLS on a listener if the file enables it; a unix socket stays as it is. name is
// that of the setting, for a warning if tokens would be sent to other machines in clear text.
func (a *Access) Listener(name string, ln net.Listener) net.Listener {
	if a == nil || ln.Addr().Network() == "unix" {
		return ln
	}
	if config := a.TLS(); config != nil {
		return tls.NewListener(ln, config)
	}
	if a.Authenticates() {
		a.warnOfClear(name, ln)
	}
	return ln
}

// CheckListener refuses a listener that other machines can reach if clients need no authentication
// or use no TLS, unless insecure, or if a credential may join as any sidecar. It is called before Run.
func (a *Access) CheckListener(name, addr string, insecure bool) error {
	if listen.IsLoopback(addr) {
		return nil
	}
	if a != nil {
		if !a.bound {
			a.bound = true
			a.warnOfStores(a.now.Load())
		}
		if err := a.now.Load().checkBound(); err != nil {
			return fmt.Errorf("%s: %s can be reached from other machines: auth-config: %w", name, addr, err)
		}
	}
	switch {
	case insecure:
		return nil
	case !a.Authenticates():
		return fmt.Errorf("%s: %s can be reached from other machines, and there is no --auth-config to say who may use it, "+
			"by tokens, certs or jwt; listen on a loopback address, or give --insecure to let everybody in", name, addr)
	case a.TLS() != nil:
		return nil
	}
	return fmt.Errorf("%s: %s can be reached from other machines, and --auth-config has no section tls: "+
		"tokens and events would be sent unencrypted; "+
		"add the section, listen on a loopback address, or give --insecure for a network that encrypts by itself", name, addr)
}

// warnOfStores warns of credentials that name no store. It is no error, since a store has its id only once it is made: an embedded
// one when its sidecar starts first.
func (a *Access) warnOfStores(r *rules) {
	if err := r.checkStores(); err != nil {
		a.log.Warn("a sidecar's credential is for no store alone", "file", a.path, "error", err)
	}
}

func (a *Access) warnOfClear(name string, ln net.Listener) {
	if addr := listen.Address(ln); !listen.IsLoopback(addr) {
		a.log.Warn("tokens are sent unencrypted: --auth-config has no section tls; this is for networks that encrypt by themselves",
			"listener", name, "address", addr)
	}
}
