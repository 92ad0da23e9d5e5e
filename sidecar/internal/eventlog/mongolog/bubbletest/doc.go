// Package bubbletest has the tests of the log in MongoDB that wait for minutes of virtual time, on
// a model of a replica set. They use only the log's public API. They run without the race detector,
// which crashes when MongoDB's driver runs in a bubble of testing/synctest (golang/go#78156).
package bubbletest
