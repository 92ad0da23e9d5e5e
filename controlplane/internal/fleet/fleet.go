// Package fleet has the control plane's knowledge of its sidecars: their identities, when they were
// last seen, which policies they run or refuse, their rates by topic, and their shares of
// fleet-wide limits.
package fleet

import "github.com/sluice-bus/sluice/sdk/wire"

// The sidecars and topics as they are shown. The registry leaves out the limits of a topic, which
// policies have.
type (
	Sidecar   = wire.Sidecar
	Rejection = wire.Rejection
	Refusals  = wire.RefusedSessions
	Topic     = wire.FleetTopic
	Usage     = wire.SidecarUsage
	Point     = wire.UsagePoint
)
