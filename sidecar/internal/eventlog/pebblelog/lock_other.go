//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pebblelog

import "os"

// tryLock does nothing here: Pebble locks its own folder.
func tryLock(*os.File) (taken bool, err error) { return false, nil }
