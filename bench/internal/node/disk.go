// Package node measures the disk of a bench run and what its processes use, and stops them for a while.
package node

import (
	"errors"
	"os"
	"slices"
	"time"
)

// Syncs measures how long a disk takes to make an appended block of 4 KiB durable, as a log does: the median of what fits into a
// second.
func Syncs(dir string) (median time.Duration, err error) {
	f, err := os.CreateTemp(dir, "sync-*")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, 4096)
	var took []time.Duration
	for began := time.Now(); time.Since(began) < time.Second; {
		at := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
