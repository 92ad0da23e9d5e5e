// Package sluicetest has a sidecar and a stand-in for a control plane, for tests of their clients.
//
// The sidecar is the real one, in the test's own process, with a log in memory: attempts, delays,
// dead letters, conflicts and filters are as they are in production. With Options.Program it is a
// process of its own instead, which Restart kills. In front of it requests and answers can be lost,
// refused and ignored.
//
// The control plane is a stand-in: it does not validate policies, has no roles, and announces no
// changes. Tests must not rely on these.
package sluicetest
