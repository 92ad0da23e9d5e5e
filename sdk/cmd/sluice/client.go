package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/secrets"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// client is the flags that every command has: whom to ask, and how to print.
type client struct {
	URL       string        `name:"url" group:"Sidecar:" default:"http://127.0.0.1:7070" help:"The sidecar's app API: http://host:port, https://host:port or unix:/path."`
	ReplayURL string        `name:"replay-url" group:"Sidecar:" placeholder:"URL" default:"http://127.0.0.1:8083" help:"The sidecar's replay API."`
	OpsURL    string        `name:"ops-url" group:"Sidecar:" placeholder:"URL" default:"http://127.0.0.1:7071" help:"The sidecar's ops listener."`
	Token     string        `secret:"--token-file, or SLUICE_TOKEN" help:"The token to authenticate with; other users of this machine see it: use --token-file."`
	TokenFile string        `placeholder:"FILE" help:"Read the token from this file, in place of --token; it is read again for each connection and request."`
	Timeout   time.Duration `default:"30s" help:"How long to wait for an answer, the whole of an export aside; 0 waits for ever."`
	JSON      bool          `name:"json" help:"Print JSON, one document on each line."`

	token func(context.Context) (string, error)
}

// readToken checks where the token comes from.
func (c *client) readToken() error {
	c.token = func(context.Context) (string, error) { return c.Token, nil }
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

func (c *client) http() *admin.HTTP {
	return &admin.HTTP{AppURL: c.URL, ReplayURL: c.ReplayURL, OpsURL: c.OpsURL, TokenFunc: c.token}
}

// longestPause is the longest one between two attempts to connect again: a
// person waits.
const longestPause = time.Second

// dial connects. What is there then reconnects by itself.
func (c *client) dial(ctx context.Context, opts ...sluice.Option) (dialled *sluice.Client, err error) {
	opts = append(opts, sluice.WithBackoff(50*time.Millisecond, longestPause), sluice.WithLogger(slog.New(slog.DiscardHandler)))
	if c.Token != "" || c.TokenFile != "" {
		opts = append(opts, sluice.WithTokenFunc(c.token))
	}
	err = c.ask(ctx, func(ctx context.Context) error {
		dialled, err = sluice.Dial(ctx, c.URL, opts...)
		return err
	})
	return dialled, err
}

// ask calls do, which asks the sidecar, with a context that the timeout ends.
func (c *client) ask(ctx context.Context, do func(context.Context) error) error {
	return c.within(ctx, "the sidecar", do)
}

// within is ask for whom do asks.
func (c *client) within(ctx context.Context, whom string, do func(context.Context) error) error {
	if c.Timeout <= 0 {
		return do(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err := do(bounded)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%s did not answer within %v (--timeout)", whom, c.Timeout)
	}
	return err
}
