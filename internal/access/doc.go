// Package access says who may do what. It reads the file of --auth-config, keeps
// what that file, its token files and its certificates say in force while they
// change, and answers two questions: who a request comes from, and whether they
// may do what it asks. The control plane and the sidecar share the file's form;
// each refuses what means nothing to it. deploy/security.md shows it with
// examples.
//
// A nil [*Access] stands for a program without --auth-config: everybody may do
// everything, and no call costs more than a comparison.
//
// # What is secret
//
// Tokens are kept as SHA-256 digests and found by them in a map, so that what a
// comparison takes tells nothing about a token. The file has digests, or names
// files that have tokens, and never tokens themselves. Neither tokens nor digests
// are ever logged or told.
//
// # Changes
//
// One look reads every file. What two looks in a row have found alike is checked
// whole and then put in force whole, so a certificate whose key has not been
// written yet, or a file with a mistake, changes nothing. Connections go on over
// a change; [Access.Renew] tells what somebody who came in before may do now.
//
// It knows HTTP and gRPC requests, and nothing of what is served by either.
package access
