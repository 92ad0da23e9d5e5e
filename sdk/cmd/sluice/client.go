package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/secrets"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/internal/endpoint"
)

// client is the flags that every command has: which sidecar to ask, and how to print. Its Provide
// methods, and that of controlPlane, make parameters of the commands' Run.
type client struct {
	Context   string        `group:"Sidecar:" of:"app replay ops plane" placeholder:"NAME" help:"Ask the servers of this context, in place of the current one; see sluice context."`
	URL       string        `name:"url" group:"Sidecar:" of:"app replay ops plane" default:"http://127.0.0.1:7070" help:"The sidecar's app API: http://host:port, https://host:port or unix:/path."`
	ReplayURL string        `name:"replay-url" group:"Sidecar:" of:"replay" placeholder:"URL" help:"The sidecar's replay API (default: as the sidecar at --url says)."`
	OpsURL    string        `name:"ops-url" group:"Sidecar:" of:"ops" placeholder:"URL" help:"The sidecar's ops listener (default: as the sidecar at --url says)."`
	Store     string        `of:"store context" group:"Control plane:" placeholder:"ID" help:"Ask about this store through the control plane, in place of a sidecar: the store_id of sluice fleet -o wide."`
	PlaneURL  string        `name:"control-plane-url" aliases:"control-plane" group:"Control plane:" of:"plane" placeholder:"URL" help:"The control plane's REST API: http://host:port, https://host:port or unix:/path (default: as the sidecar at --url says, and http://127.0.0.1:7080 without a --url). --control-plane is the same."`
	CA        string        `name:"ca" group:"Sidecar:" of:"app replay ops plane" placeholder:"FILE" help:"Trust the certificate authorities in this PEM file, and no others."`
	Token     string        `of:"app replay ops plane" secret:"--token-file, or SLUICE_TOKEN" help:"The token to authenticate with; other users of this machine see it: use --token-file."`
	TokenFile string        `of:"app replay ops plane" placeholder:"FILE" help:"Read the token from this file, in place of --token; it is read again for each connection and request."`
	Timeout   time.Duration `of:"app replay ops plane" default:"30s" help:"How long to wait for an answer; 0 waits for ever. Exports, latest, events delete, dlq redrive and dlq discard take as long as there is to do."`
	Output    format        `short:"o" enum:"table,wide,json,yaml" default:"table" help:"How to print answers: table, wide (all columns and whole cells), json (as servers answer, a document on each line) or yaml."`

	token func(context.Context) (string, error)
	tls   *tls.Config // nil: what the system trusts
}

// AfterApply checks where the token comes from, and hands the flags to the command's Run.
func (c *client) AfterApply(parsed *kong.Context) error {
	parsed.Bind(c)
	if err := checkServers(parsed, c.Store != ""); err != nil {
		return err
	}
	if err := c.checkStore(parsed); err != nil {
		return err
	}
	for _, given := range []struct{ flag, address string }{
		{"url", c.URL}, {"replay-url", c.ReplayURL}, {"ops-url", c.OpsURL}, {"control-plane-url", c.PlaneURL},
	} {
		if _, err := endpoint.Parse(given.address); given.address != "" && err != nil {
			return program.Usagef("--%s: %w", given.flag, err)
		}
	}
	c.token = func(context.Context) (string, error) { return c.Token, nil }
	if c.CA != "" {
		var err error
		if c.tls, err = trusting(c.CA); err != nil {
			return program.Usagef("--ca: %w", err)
		}
	}
	if c.TokenFile == "" {
		return nil
	}
	token, err := secrets.Follow(c.TokenFile)
	if err != nil {
		return program.Usagef("--token-file: %w", err)
	}
	c.token = func(context.Context) (string, error) { return token(), nil }
	return nil
}

// checkServers refuses flags about servers that the command does not ask: to ignore one would hide that it does nothing. A command
// that is given a store asks the control plane.
func checkServers(parsed *kong.Context, store bool) error {
	servers := strings.Fields(asks(parsed))
	if store && slices.Contains(servers, "store") {
		servers = []string{"plane", "store"}
	}
	for _, given := range parsed.Path {
		if given.Flag == nil || given.Resolved || !given.Flag.Tag.Has("of") {
			continue
		}
		of := strings.Fields(given.Flag.Tag.Get("of"))
		if !slices.ContainsFunc(servers, func(server string) bool { return slices.Contains(of, server) }) {
			return program.Usagef("--%s does not go with %s, which has no use for it", given.Flag.Name, parsed.Command())
		}
	}
	return nil
}

// checkStore takes the store of a context away from a command that does not ask about stores. Such a command needs a sidecar: the
// one with the default address is not the context's.
func (c *client) checkStore(parsed *kong.Context) error {
	servers := strings.Fields(asks(parsed))
	if c.Store == "" || slices.Contains(servers, "store") || slices.Contains(servers, "context") {
		return nil
	}
	c.Store = ""
	given := func(name string) bool {
		return slices.ContainsFunc(parsed.Path, func(at *kong.Path) bool { return at.Flag != nil && at.Flag.Name == name })
	}
	if slices.Contains(servers, "plane") || given("url") || slices.ContainsFunc(servers, func(s string) bool { return given(s + "-url") }) {
		return nil
	}
	return program.Usagef("%s asks a sidecar, and the context has only a store at a control plane: give --url", parsed.Command())
}

// asks names the servers that a command asks.
func asks(parsed *kong.Context) (servers string) {
	for node := parsed.Selected(); node != nil && servers == ""; node = node.Parent {
		servers = node.Tag.Get("asks")
	}
	return servers
}

// The addresses of a sidecar with the default settings, which need not be asked for.
const (
	defaultURL       = "http://127.0.0.1:7070"
	defaultReplayURL = "http://127.0.0.1:8083"
	defaultOpsURL    = "http://127.0.0.1:7071"

	defaultControlPlaneURL = "http://127.0.0.1:7080"
)

// ProvideSidecar makes the client of the sidecar's HTTP APIs.
func (c *client) ProvideSidecar(ctx context.Context) *admin.HTTP {
	if c.Store != "" {
		h := &admin.HTTP{AppURL: cmp.Or(c.PlaneURL, defaultControlPlaneURL), Store: c.Store, TokenFunc: c.token, TLSConfig: c.tls}
		context.AfterFunc(ctx, h.CloseIdle)
		return h
	}
	if c.URL == defaultURL {
		c.ReplayURL, c.OpsURL = cmp.Or(c.ReplayURL, defaultReplayURL), cmp.Or(c.OpsURL, defaultOpsURL)
	}
	h := &admin.HTTP{AppURL: c.URL, ReplayURL: c.ReplayURL, OpsURL: c.OpsURL, TokenFunc: c.token, TLSConfig: c.tls}
	context.AfterFunc(ctx, h.CloseIdle)
	return h
}

// longestPause is the longest one between two attempts to connect again: a person waits.
const longestPause = time.Second

// dial connects. The client then reconnects by itself.
func (c *client) dial(ctx context.Context, opts ...sluice.Option) (*sluice.Client, error) {
	opts = append(opts, sluice.WithBackoff(50*time.Millisecond, longestPause), sluice.WithLogger(slog.New(slog.DiscardHandler)))
	if c.tls != nil {
		opts = append(opts, sluice.WithTLSConfig(c.tls))
	}
	if c.Token != "" || c.TokenFile != "" {
		opts = append(opts, sluice.WithTokenFunc(c.token))
	}
	return ask(ctx, c, func(ctx context.Context) (*sluice.Client, error) { return sluice.Dial(ctx, c.URL, opts...) })
}

// ask calls do, which asks the sidecar, with a context that the timeout ends.
func ask[T any](ctx context.Context, c *client, do func(context.Context) (T, error)) (T, error) {
	return within(ctx, c, "the sidecar", do)
}

// tell is ask without an answer.
func (c *client) tell(ctx context.Context, do func(context.Context) error) error {
	_, err := ask(ctx, c, func(ctx context.Context) (any, error) { return nil, do(ctx) })
	return err
}

// within calls do, which asks a server, with a context that the timeout ends.
func within[T any](ctx context.Context, c *client, server string, do func(context.Context) (T, error)) (T, error) {
	if c.Timeout <= 0 {
		return do(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	answer, err := do(bounded)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%s did not answer within %v (--timeout)", server, c.Timeout)
	}
	return answer, err
}
