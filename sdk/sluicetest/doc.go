// Package sluicetest has stand-ins for a sidecar and for a control plane, for
// tests of what talks to one: they answer the same requests on 127.0.0.1 out of
// memory, at once.
//
// The sidecar is none: one partition, no limits, no policies, no deadlines, no
// key order, and nothing outlives it. So is the control plane: it does not know
// what a policy may say, has no roles, and tells nobody of a change. They must
// not know what is tested with them.
package sluicetest
