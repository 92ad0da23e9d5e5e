// Package bubbletest has the tests of the log in MongoDB that wait for minutes of virtual time, on
// a model of a replica set. They know of the log what its users know, and run without the race
// detector, which crashes where MongoDB's driver lives in a bubble of testing/synctest
// (golang/go#78156).
package bubbletest
