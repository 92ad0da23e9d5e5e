package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// controlPlane is the flags of the commands that ask the control plane.
type controlPlane struct {
	User string `group:"Control plane:" of:"plane" placeholder:"NAME" help:"Author of a change, for the audit log, where no token says so (default: the current user)."`
}

// ProvideControlPlane makes the client of the control plane.
func (p *controlPlane) ProvideControlPlane(ctx context.Context, c *client, h *admin.HTTP) (*admin.ControlPlane, error) {
	if c.PlaneURL == "" && c.URL == defaultURL {
		c.PlaneURL = defaultControlPlaneURL
	}
	plane := &admin.ControlPlane{URL: c.PlaneURL, Sidecar: h, TokenFunc: c.token, User: p.User}
	if plane.User == "" {
		if current, err := user.Current(); err == nil { // the name is optional
			plane.User = current.Username
		}
	}
	if c.tls != nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = c.tls.Clone()
		plane.Client = &http.Client{Transport: transport}
	}
	context.AfterFunc(ctx, plane.CloseIdle)
	return plane, nil
}

// trusting trusts the certificate authorities of a file.
func trusting(file string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", file)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// askPlane calls do, which asks the control plane, with a context that the timeout ends. Where a
// token is missing, the error says how to give one.
func askPlane[T any](ctx context.Context, c *client, do func(context.Context) (T, error)) (T, error) {
	answer, err := within(ctx, c, "the control plane", do)
	if errors.Is(err, &wire.Error{Code: wire.Unauthorized}) {
		err = fmt.Errorf("%w (give a token with --token or --token-file)", err)
	}
	return answer, err
}

func isNotFound(err error) bool { return errors.Is(err, &wire.Error{Code: wire.NotFound}) }

// listed prints each bad field of a policy that was refused on a line of its own, and returns an
// error that sums them up. Other errors it returns as they are. names are the policies that were
// sent, in their order.
func listed(stderr io.Writer, err error, names ...string) error {
	refusal, ok := errors.AsType[*wire.Error](err)
	if !ok || len(refusal.Fields) == 0 {
		return err
	}
	fields := map[string]bool{} // one may have several reasons
	for _, f := range refusal.Fields {
		fields[f.Field] = true
		fmt.Fprintf(stderr, "  %s: %s\n", plain(named(f.Field, names)), plain(f.Message))
	}
	bad := "1 field is not valid"
	if n := len(fields); n > 1 {
		bad = fmt.Sprintf("%d fields are not valid", n)
	}
	return fmt.Errorf("%s: %s, so nothing was changed", refusal.Code, bad)
}

// named turns policies[2].publish.rate into orders.*: publish.rate, and also
// policies["orders.*"].publish.rate, the form for a policy that was not sent.
func named(field string, names []string) string {
	rest, ok := strings.CutPrefix(field, "policies[")
	which, path, closed := strings.Cut(rest, "].")
	if !ok || !closed {
		return field
	}
	if i, err := strconv.Atoi(which); err == nil && i >= 0 && i < len(names) {
		return names[i] + ": " + path
	}
	if name, err := strconv.Unquote(which); err == nil {
		return name + ": " + path
	}
	return field
}
