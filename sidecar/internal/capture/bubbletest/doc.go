// Package bubbletest has the tests of captures, on a model of a replica set in virtual time. They
// use the package's exported names only, and run without the race detector, which crashes where
// MongoDB's driver lives in a bubble of testing/synctest (golang/go#78156).
package bubbletest
