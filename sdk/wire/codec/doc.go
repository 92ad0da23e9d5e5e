// Package codec reads and writes the frames and bodies of Sluice's contract, and
// checks what is read against its limits. Sidecar and SDK share it, so that both
// agree on what is valid. It is no interface for applications: its names may
// change with any version. It knows package wire and the standard library alone.
package codec
