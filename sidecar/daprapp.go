package sidecar

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/daprapp"
)

// daprGroup is the consumer group of an application that was written for Dapr.
func (c Config) daprGroup() string {
	if c.DaprAppID == "" {
		return c.NodeID
	}
	return c.DaprAppID
}

// validateDaprApp checks the settings of such an application.
func (c Config) validateDaprApp() (errs []error) {
	if c.DaprApp == "" {
		if c.DaprAppID != "" {
			errs = append(errs, fmt.Errorf("dapr-app-id: is for an application at dapr-app, which is missing"))
		}
		if c.DaprAppIdentity != "" {
			errs = append(errs, fmt.Errorf("dapr-app-identity: is for an application at dapr-app, which is missing"))
		}
		return errs
	}
	if c.DaprAppIdentity != "" && c.AuthConfig == "" {
		errs = append(errs, fmt.Errorf("dapr-app-identity: is an entry of auth-config, which is missing"))
	}
	if _, err := daprapp.ParseAddress(c.DaprApp); err != nil {
		errs = append(errs, fmt.Errorf("dapr-app: %w", err))
	}
	if err := codec.CheckGroup(c.daprGroup()); err != nil {
		errs = append(errs, fmt.Errorf("dapr-app-id: %q is no name of a consumer group: %s", c.daprGroup(), err.Msg))
	}
	return errs
}

// openDaprApp makes the package's App, if an application is configured.
func (s *Sidecar) openDaprApp(context.Context) error {
	if s.cfg.DaprApp == "" {
		return nil
	}
	address, err := daprapp.ParseAddress(s.cfg.DaprApp)
	if err != nil {
		return &ConfigError{Err: fmt.Errorf("dapr-app: %w", err)}
	}
	if s.cfg.DaprAppIdentity == "" && s.access.Authenticates() {
		return &ConfigError{Err: errors.New("dapr-app-identity: is needed, since clients need tokens, certificates or JWTs by --auth-config: " +
			"name the entry whose rights the application at dapr-app has")}
	}
	cfg := daprapp.Config{
		Address: address, AppID: s.cfg.daprGroup(), Groups: s.groups, Policies: s.policies.Current, Logger: s.cfg.Logger,
		Share: s.budget.Of(s.cfg.DaprAppIdentity),
	}
	if s.cfg.DaprAppIdentity != "" {
		if cfg.May, err = daprapp.RightsOf(s.access, s.cfg.DaprAppIdentity, cfg.AppID); err != nil {
			return &ConfigError{Err: fmt.Errorf("dapr-app-identity: %w", err)}
		}
	}
	s.daprApp = daprapp.New(cfg)
	s.access.OnChange(s.daprApp.RightsChanged)
	return nil
}
