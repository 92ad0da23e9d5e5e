// Package simulation runs the stores of several control planes on a replica set that is a model in
// memory, all in one bubble of virtual time, with faults by seed. It checks that the results that
// people and the other control planes saw are those that the store promises. It has only tests, and
// runs without the race detector, which crashes where MongoDB's driver lives in a bubble of
// testing/synctest (golang/go#78156).
//
// A control plane is here: the store in MongoDB by the real driver, the catalog of policies that
// follows it, and the signs of life with their documents. It has no listeners, xDS, registry of
// sidecars or quotas.
package simulation
