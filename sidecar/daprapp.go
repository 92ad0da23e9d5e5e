package sidecar

import (
	"context"
	"fmt"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/daprapp"
)

// daprGroup is the consumer group of an application that was written for Dapr.
func (c Config) daprGroup() string {
	if c.DaprAppID == "" {
		return c.NodeID
	}
	return c.DaprAppID
}

// validateDaprApp checks the settings about such an application.
func (c Config) validateDaprApp() (errs []error) {
	if c.DaprApp == "" {
		if c.DaprAppID != "" {
			errs = append(errs, fmt.Errorf("dapr-app-id: is for an application at dapr-app, which is missing"))
		}
		return errs
	}
	if _, err := daprapp.ParseAddress(c.DaprApp); err != nil {
		errs = append(errs, fmt.Errorf("dapr-app: %w", err))
	}
	if err := wire.CheckGroup(c.daprGroup()); err != nil {
		errs = append(errs, fmt.Errorf("dapr-app-id: %q is no name of a consumer group: %s", c.daprGroup(), err.Msg))
	}
	return errs
}

// openDaprApp makes the application's side, if there is one.
func (s *Sidecar) openDaprApp() error {
	if s.cfg.DaprApp == "" {
		return nil
	}
	address, err := daprapp.ParseAddress(s.cfg.DaprApp)
	if err != nil {
		return &ConfigError{Err: fmt.Errorf("dapr-app: %w", err)}
	}
	s.daprApp = daprapp.New(daprapp.Config{
		Address: address, AppID: s.cfg.daprGroup(), Groups: s.groups, Policies: s.policies, Logger: s.cfg.Logger,
	})
	return nil
}

// stopDaprApp lets the application finish what it was given, once the context of
// its Run has ended.
func (s *Sidecar) stopDaprApp(ctx context.Context) {
	if s.daprApp != nil {
		s.daprApp.Shutdown(ctx)
	}
}
