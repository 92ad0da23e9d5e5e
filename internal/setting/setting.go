// Package setting has the servers' shared settings. It must not know how they are given.
package setting

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-bus/sluice/internal/secrets"
)

// Embedded is the store in a server's data folder.
const Embedded = "embedded:"

// IsMongoDB reports whether a store is one in MongoDB.
func IsMongoDB(store string) bool {
	return strings.HasPrefix(store, "mongodb://") || strings.HasPrefix(store, "mongodb+srv://")
}

// StoreOf returns the store of two settings: one has its URL, the other a file with it. The error
// is an *Error.
func StoreOf(store, file string) (string, error) {
	if file == "" {
		return store, nil
	}
	if store != Embedded {
		return "", &Error{errors.New("store-file: cannot be given together with store; give one of them")}
	}
	store, err := secrets.FromFile(file)
	if err != nil {
		return "", &Error{fmt.Errorf("store-file: %w", err)}
	}
	return store, nil
}

// CheckStore refuses a store of an unknown kind. It quotes only the scheme, since the rest may have
// a password.
func CheckStore(store string) error {
	if store == Embedded || IsMongoDB(store) {
		return nil
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
