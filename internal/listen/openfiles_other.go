//go:build !unix

package listen

import "math"

// OpenFiles is how many files and connections this process may have open at a time.
func OpenFiles() int { return math.MaxInt32 }
