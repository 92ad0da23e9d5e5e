// Package admin asks sidecars and control planes by HTTP, and changes what they
// keep.
//
// [HTTP] asks one sidecar: which topics and groups there are, what has become of
// an event, which dead letters wait; it moves and deletes groups, redrives and
// discards dead letters, deletes topics and erases events. It also publishes,
// consumes ([HTTP.Pull], [HTTP.Stream]) and replays without a WebSocket, from this
// sidecar or from the whole fleet. [ControlPlane] asks a control plane about
// policies and the fleet, and changes policies.
//
// An application that publishes and consumes needs package sluice alone.
package admin
