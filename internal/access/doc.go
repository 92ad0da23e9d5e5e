// Package access authenticates and authorizes requests. It reads the file of --auth-config, its
// token files and its certificates, follows their changes, and answers two questions: which
// identity a request has, and whether this has the right to the request. The control plane and the
// sidecar share the file's format; each refuses keys that it does not use. deploy/security.md shows
// it with examples.
//
// A nil [*Access] stands for a program without --auth-config: every client may do everything, and
// no call costs more than a comparison. So does a file in which no client has to authenticate: one
// with neither tokens nor certs nor jwt, which says how a sidecar speaks to others.
//
// # Secrets
//
// Tokens are kept as SHA-256 digests and found by them in a map, so that the time of a comparison
// tells nothing about a token. The file has digests, or names of files with tokens, and never
// tokens themselves. Neither tokens nor digests are ever logged or sent.
//
// # Changes
//
// Each poll reads every file. Content that two polls in a row have found is checked and put in
// force as a whole, so a certificate whose key has not been written yet, or an invalid file,
// changes nothing. Connections go on over a change; [Access.Renew] returns the current rights of an
// identity.
package access
