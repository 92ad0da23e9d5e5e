//go:build race

package pebblelog

// mutatesWrites says that Pebble's files in memory, which tests use, change what they are given to write: they do so with the
// race detector, to find who reads it afterwards. The journal does, until the file has it, and files on a disk let it.
const mutatesWrites = true
