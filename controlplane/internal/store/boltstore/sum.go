package boltstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// The sum is the exclusive or of a hash of each entry of the store's buckets, in "meta" under "sum".
// A change of an entry changes it in the same transaction. bbolt has a checksum of its first pages
// alone: with the sum, a start notices an entry that was changed, or is not found any more. Beside it
// is the number of the transaction: a page of an earlier one, which has the earlier sum, has another.
var (
	sumKey         = []byte("sum")
	transactionKey = []byte("transaction")
)

// errDamaged says that the file does not have what was written to it.
var errDamaged = errors.New("it is damaged")

func hash(bucket, key, value []byte) uint64 {
	h := sha256.New()
	for _, part := range [][]byte{bucket, key, value} {
		_, _ = h.Write(bigEndian(uint64(len(part)))) // a hash does not fail
		_, _ = h.Write(part)
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// put sets an entry; nil removes it.
func put(tx *bbolt.Tx, bucket, key, value []byte) error {
	meta, b := tx.Bucket(metaBucket), tx.Bucket(bucket)
	sum := binary.BigEndian.Uint64(meta.Get(sumKey))
	if old := b.Get(key); old != nil {
		sum ^= hash(bucket, key, old)
	}
	var err error
	if value == nil {
		err = b.Delete(key)
	} else {
		sum ^= hash(bucket, key, value)
		err = b.Put(key, value)
	}
	return errors.Join(err, meta.Put(sumKey, bigEndian(sum)))
}

// seal ends a transaction.
func seal(tx *bbolt.Tx) error {
	return tx.Bucket(metaBucket).Put(transactionKey, bigEndian(uint64(tx.ID())))
}

// verify reads every entry.
func verify(tx *bbolt.Tx) error {
	var sum uint64
	for _, name := range buckets {
		b := tx.Bucket(name)
		if b == nil {
			return fmt.Errorf("%w: the bucket of %s is missing", errDamaged, name)
		}
		err := b.ForEach(func(key, value []byte) error {
			sum ^= hash(name, key, value)
			return nil
		})
		if err != nil {
			return err
		}
	}
	switch meta := tx.Bucket(metaBucket); {
	case !bytes.Equal(meta.Get(transactionKey), bigEndian(uint64(tx.ID()))):
		return fmt.Errorf("%w: a page is of another transaction", errDamaged)
	case !bytes.Equal(meta.Get(sumKey), bigEndian(sum)):
		return fmt.Errorf("%w: its checksum is wrong", errDamaged)
	}
	return nil
}
