package admin

import "github.com/sluice-bus/sluice/sdk/wire"

// The sidecars and topics of a fleet, as the control plane describes them.
type (
	Sidecar         = wire.Sidecar
	Rejection       = wire.Rejection
	RefusedSessions = wire.RefusedSessions
	FleetTopic      = wire.FleetTopic
	SidecarUsage    = wire.SidecarUsage
	UsagePoint      = wire.UsagePoint
)
