//go:build !unix

package node

import "errors"

// Pause would stop processes.
func Pause(...int) error { return errors.ErrUnsupported }

// Resume would let processes go on.
func Resume(...int) error { return errors.ErrUnsupported }
