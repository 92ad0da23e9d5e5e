package boltstore

import (
	"bytes"
	"context"

	"go.etcd.io/bbolt"
)

// Secret implements store.Secrets.
func (s *Store) Secret(_ context.Context, name string, fresh []byte) (secret []byte, err error) {
	err = s.write(s.db.Update, func(tx *bbolt.Tx) error {
		if secret = bytes.Clone(tx.Bucket(secretsBucket).Get([]byte(name))); secret != nil {
			return nil
		}
		secret = fresh
		return put(tx, secretsBucket, []byte(name), fresh)
	})
	return secret, wrap("read a secret of the control planes", err)
}
