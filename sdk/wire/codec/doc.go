// Package codec reads and writes the frames and bodies of Sluice's contract, and checks those that
// it reads against its limits. Sidecar and SDK share it, so that both accept the same. It is no
// interface for applications: its names may change with any version. It knows package wire and the
// standard library alone.
package codec
