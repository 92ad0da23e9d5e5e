//go:build !linux

package program

// releasePages is left to the system.
func releasePages() {}
