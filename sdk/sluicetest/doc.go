// Package sluicetest is a stand-in for a sidecar, for tests of what talks to
// one: it answers the same requests on 127.0.0.1 out of memory, at once.
//
// It is no sidecar: one partition, no limits, no policies, no deadlines, no key
// order, and nothing outlives it. It must not know what is tested with it.
package sluicetest
