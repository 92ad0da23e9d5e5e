// Package setting has the servers' shared settings.
package setting

import (
	"errors"
	"fmt"
	"strings"
)

// Embedded is the store in a server's data folder.
const Embedded = "embedded:"

// IsMongoDB reports whether a store is one in MongoDB.
func IsMongoDB(store string) bool {
	return strings.HasPrefix(store, "mongodb://") || strings.HasPrefix(store, "mongodb+srv://")
}

// CheckStore refuses a store of an unknown kind. It quotes only the scheme, since the rest may have
// a password.
func CheckStore(store string) error {
	if store == Embedded || IsMongoDB(store) {
		return nil
	}
	if strings.HasPrefix(store, Embedded) {
		return errors.New("store: embedded: has nothing behind it; --data-dir names its folder")
	}
	const allowed = "must be embedded:, mongodb://… or mongodb+srv://…"
	if scheme, _, ok := strings.Cut(store, ":"); ok && len(scheme) <= 20 && !strings.ContainsAny(scheme, "/@") {
		return fmt.Errorf("store: %s, not %s:…", allowed, scheme)
	}
	return errors.New("store: " + allowed)
}

// Error says that a setting is wrong, so that another attempt does not help.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }
