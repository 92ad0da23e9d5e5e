// Package quotatest lets tests of other programs run the control plane's quota service as it is. It
// is for tests alone.
package quotatest

import "github.com/sluice-bus/sluice/controlplane/internal/quota"

// Config is what the service needs.
type Config = quota.Config

// Server is the service.
type Server = quota.Server

// New makes a service.
func New(cfg Config) *Server { return quota.New(cfg) }
