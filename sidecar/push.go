package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sidecar/internal/push"
)

// PushSchema is the JSON Schema of the file of Config.Push.
func PushSchema() map[string]any { return push.JSONSchema() }

// openPush reads the endpoints, if there is a file of them.
func (s *Sidecar) openPush(context.Context) (err error) {
	if s.cfg.Push == "" {
		return nil
	}
	s.push, err = push.Open(push.Config{
		Path: s.cfg.Push, Groups: s.groups, Policies: s.policies.Current, Metrics: s.metrics, Logger: s.cfg.Logger,
		Known: s.knownIdentity, May: s.mayConsume, Share: s.budget.Of,
		Tracing: s.tracing, Propagation: s.propagation, Note: s.noteMember,
	})
	if err != nil {
		return &ConfigError{Err: fmt.Errorf("push: %w", err)}
	}
	s.access.OnChange(s.push.RightsChanged)
	return nil
}

// knownIdentity returns what is wrong with the identity of a consumer that does not authenticate, which the settings name.
func (s *Sidecar) knownIdentity(name string) error {
	switch {
	case name == "" && s.access.Authenticates():
		return errors.New("is needed, since clients need tokens, certificates or JWTs by --auth-config: name the entry with whose rights the " +
			"events are consumed")
	case name == "":
		return nil
	case s.access == nil:
		return errors.New("is an entry of auth-config, which is missing")
	}
	_, err := s.access.Named(name)
	return err
}

// noteMember returns what writes lines about such a consumer to the access log.
func (s *Sidecar) noteMember(identity, from, topic, group string) func(action string, err error) {
	return s.audit.Member(cmp.Or(identity, s.access.From(context.Background()).Name), from, topic, group)
}

// mayConsume returns why such a consumer may not have a subscription, if it may not.
func (s *Sidecar) mayConsume(identity, topic, group string) error {
	if !s.access.Authenticates() {
		return nil
	}
	id, err := s.access.Named(identity)
	if err != nil {
		return err
	}
	return id.May(access.Subscribe, topic, group)
}
