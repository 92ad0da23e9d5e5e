package eventlog

import "fmt"

// DamageError says that a file of the log does not have what was written to it, so that a start is refused, or the read
// of an event. Reads of other events go on.
type DamageError struct {
	File   string
	Offset int64
	What   string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %s; restore the data folder from a backup, or see what is left "+
		"with sluice-sidecar verify", e.File, e.Offset, e.What)
}
