// Package gateway assembles the sidecar's API for applications: WebSockets (ws), publishing
// (ingest), consuming over HTTP (consume), and what manages a store (manage), behind sessions that
// say who a caller is.
//
// # Who may do what
//
// Config.Access decides; without it every client may do everything. An HTTP request has to show a
// token or a certificate. A WebSocket may instead send a token with AUTH, for which it has a short
// time and short frames. Each op is checked with the rights in force when it arrives, and the
// events of a PUBLISH one by one, after their shape and before any limit. After a change of rights
// the connections are closed, with 1008, that may no longer be open, or no longer have their
// subscriptions.
package gateway
