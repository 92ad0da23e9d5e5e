package sidecar

import (
	"context"
	"errors"
	"fmt"
	"unicode"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/daprapp"
	"github.com/sluice-bus/sluice/sidecar/internal/daprgrpc"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// validateDapr checks the settings of an application that was written for Dapr.
func (c Config) validateDapr() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, s := range []struct{ name, value string }{
		{"dapr-app-identity", c.DaprAppIdentity}, {"dapr-app-token-file", c.DaprAppTokenFile}, {"dapr-subscriptions", c.DaprSubscriptions},
	} {
		if c.DaprApp == "" && s.value != "" {
			bad("%s: is for an application at dapr-app, which is missing", s.name)
		}
	}
	switch {
	case c.DaprAppID == "" && c.DaprApp != "":
		bad("dapr-app-id: is missing: it names the application at dapr-app, and begins the names of its consumer groups")
	case c.DaprAppID != "" && c.DaprApp == "" && c.DaprGRPCListen == "":
		bad("dapr-app-id: is for an application at dapr-app, or for clients of dapr-grpc-listen, and both are missing")
	case c.DaprAppID != "":
		if err := codec.CheckGroup(daprapp.GroupOf(c.DaprAppID, "pubsub")); err != nil {
			bad("dapr-app-id: %q cannot begin the name of a consumer group: %s", c.DaprAppID, err.Msg)
		}
	}
	if c.DaprAppIdentity != "" && c.AuthConfig == "" {
		bad("dapr-app-identity: is an entry of auth-config, which is missing")
	}
	if c.DaprApp != "" {
		if _, err := daprapp.ParseAddress(c.DaprApp); err != nil {
			bad("dapr-app: %w", err)
		}
	}
	return errs
}

// openDaprApp makes the package's App, if an application is configured.
func (s *Sidecar) openDaprApp(context.Context) error {
	if s.cfg.DaprApp == "" {
		return nil
	}
	cfg := daprapp.Config{
		AppID: s.cfg.DaprAppID, Groups: s.groups, Policies: s.policies.Current, Logger: s.cfg.Logger, Share: s.budget.Of(s.cfg.DaprAppIdentity),
		Tracing: s.tracing, Propagation: s.propagation,
		Note: func(from, topic, group string) func(action string, err error) {
			return s.noteMember(s.cfg.DaprAppIdentity, from, topic, group)
		},
	}
	err := s.configureDaprApp(&cfg)
	if err == nil {
		s.daprApp, err = daprapp.New(cfg)
	}
	if err != nil {
		return &ConfigError{Err: err}
	}
	s.access.OnChange(s.daprApp.RightsChanged)
	return nil
}

// configureDaprApp reads what the settings name.
func (s *Sidecar) configureDaprApp(cfg *daprapp.Config) (err error) {
	if cfg.Address, err = daprapp.ParseAddress(s.cfg.DaprApp); err != nil {
		return fmt.Errorf("dapr-app: %w", err)
	}
	if s.cfg.DaprSubscriptions != "" {
		cfg.Described, err = daprapp.ReadFiles(s.cfg.DaprSubscriptions, s.cfg.DaprAppID, cfg.Address.Scheme == "http")
		if err != nil {
			return fmt.Errorf("dapr-subscriptions: %w", err)
		}
	}
	if cfg.Token, err = s.cfg.daprAppToken(); err != nil {
		return err
	}
	if s.cfg.DaprAppIdentity == "" && s.access.Authenticates() {
		return errors.New("dapr-app-identity: is needed, since clients need tokens, certificates or JWTs by --auth-config: " +
			"name the entry whose rights the application at dapr-app has")
	}
	if s.cfg.DaprAppIdentity != "" {
		if cfg.May, err = daprapp.RightsOf(s.access, s.cfg.DaprAppIdentity); err != nil {
			return fmt.Errorf("dapr-app-identity: %w", err)
		}
	}
	return nil
}

// daprAppToken is the token for the application: that of the file, which is read again when it changes, or of the
// environment.
func (c Config) daprAppToken() (func() string, error) {
	if c.DaprAppTokenFile == "" {
		for _, r := range c.DaprAppToken {
			if r <= ' ' || r > unicode.MaxASCII {
				return nil, errors.New("APP_API_TOKEN has spaces, or characters that a header cannot carry")
			}
		}
		return func() string { return c.DaprAppToken }, nil
	}
	client, err := access.ClientConfig{TokenFile: c.DaprAppTokenFile}.Open()
	if err != nil {
		return nil, fmt.Errorf("dapr-app-token-file: %w", err)
	}
	return client.Token, nil
}

// openDaprServer makes what serves Dapr's API over gRPC.
func (s *Sidecar) openDaprServer() {
	s.daprAPI = daprgrpc.New(daprgrpc.Config{
		Sessions: s.gateway.Sessions, Publish: s.gateway.Publish, Groups: s.groups, Policies: s.policies.Current,
		AppID: s.cfg.DaprAppID, NodeID: s.cfg.NodeID, Version: s.cfg.Version, DrainTimeout: s.cfg.DrainTimeout, Logger: s.cfg.Logger,
		ReceiveTimeout: session.DefaultBounds().ReceiveTimeout,
		Options:        s.access.TransportOptions("dapr-grpc-listen", s.listeners.dapr), Propagation: s.propagation,
	})
}
