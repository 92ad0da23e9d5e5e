// Package sluice is the first layer of the Go client: [Conn] is one WebSocket
// connection to a sidecar, and [HTTP] asks its HTTP listeners for what is there
// already. [ControlPlane] asks a control plane about policies and the fleet. The
// contract's types and error codes are those of package wire.
//
// The layer is thin on purpose. A Conn that broke stays broken: nothing
// reconnects, nothing is sent again, and nobody acknowledges an event but the
// caller. The full client, which does all that, is built on top of it.
//
// # Errors
//
// What the sidecar refuses is a [*wire.Error], with its code and, where
// waiting helps, RetryAfter. A connection that ended gives errors that match
// [ErrClosed]; whether the sidecar acted on a request that got such an error is
// not known. Publishing again under the same ID is harmless.
package sluice
