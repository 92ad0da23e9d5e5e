// Package bubbletest has the tests of the outbox that wait for minutes of virtual time, on a model
// of a replica set: how a drainer follows change streams, also when members fail and the oplog is
// too short. They use its exported names only, and run without the race detector, which crashes
// where MongoDB's driver lives in a bubble of testing/synctest (golang/go#78156).
package bubbletest
