package boltstore

import (
	"bytes"
	"context"
	"encoding/json"

	"go.etcd.io/bbolt"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

// PutUsage implements store.Usage.
func (s *Store) PutUsage(_ context.Context, d store.UsageDoc) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return wrap("keep what was counted", s.write(s.db.Update, func(tx *bbolt.Tx) error {
		var there store.UsageDoc
		if old := tx.Bucket(usageBucket).Get([]byte(d.Key())); old != nil {
			if err := json.Unmarshal(old, &there); err != nil {
				return err
			}
		}
		if there.Number >= d.Number {
			return nil
		}
		return put(tx, usageBucket, []byte(d.Key()), text)
	}))
}

// UsageBetween implements store.Usage.
func (s *Store) UsageBetween(_ context.Context, from, to string) (docs []store.UsageDoc, _ error) {
	err := s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(usageBucket).Cursor()
		for key, text := c.Seek([]byte(from)); key != nil && bytes.Compare(key, afterDay(to)) < 0; key, text = c.Next() {
			var d store.UsageDoc
			if err := json.Unmarshal(text, &d); err != nil {
				return err
			}
			docs = append(docs, d)
		}
		return nil
	})
	return docs, wrap("read what was counted", err)
}

// ForgetUsage implements store.Usage.
func (s *Store) ForgetUsage(_ context.Context, day string) error {
	return wrap("forget what was counted", s.write(s.db.Update, func(tx *bbolt.Tx) error {
		var old [][]byte
		c := tx.Bucket(usageBucket).Cursor()
		for key, _ := c.First(); key != nil && bytes.Compare(key, []byte(day)) < 0; key, _ = c.Next() {
			old = append(old, bytes.Clone(key))
		}
		for _, key := range old {
			if err := put(tx, usageBucket, key, nil); err != nil {
				return err
			}
		}
		return nil
	}))
}

// afterDay is above the keys of a day, whose writers come after a line feed.
func afterDay(day string) []byte { return []byte(day + "\v") }
