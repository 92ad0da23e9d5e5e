// Package admin is a client of the HTTP APIs of sidecars and control planes.
//
// [HTTP] asks one sidecar about its topics, its groups, the state of an event and the dead letters;
// it moves and deletes groups, redrives and discards dead letters, deletes topics and erases
// events. It also publishes, consumes ([HTTP.Pull], [HTTP.Stream]) and replays without a WebSocket,
// from this sidecar or from the whole fleet. [ControlPlane] asks a control plane about policies and
// the fleet, and changes policies.
//
// An application that publishes and consumes needs package sluice alone.
package admin
