package boltstore

import (
	"context"
	"encoding/json"

	"go.etcd.io/bbolt"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

// rosterValue is a sidecar; with Life "" it marks one that has left.
type rosterValue struct {
	Life string `json:"life"`
	Doc  []byte `json:"doc,omitempty"`
	Left string `json:"left,omitempty"` // the life that has left last
}

// Enter implements store.Roster.
func (s *Store) Enter(_ context.Context, e store.RosterEntry) error {
	return s.changeRoster(e.Key, "remember a sidecar", func(v *rosterValue) bool {
		change := v.Left != e.Life
		v.Life, v.Doc = e.Life, e.Doc
		return change
	})
}

// Leave implements store.Roster.
func (s *Store) Leave(_ context.Context, key, life string) error {
	return s.changeRoster(key, "forget a sidecar", func(v *rosterValue) bool {
		*v = rosterValue{Left: life}
		return true
	})
}

// changeRoster changes a sidecar's value, if change says so, in one transaction with concurrent
// calls: after a start all sidecars connect.
func (s *Store) changeRoster(key, op string, change func(*rosterValue) bool) error {
	err := s.write(s.db.Batch, func(tx *bbolt.Tx) error {
		roster := tx.Bucket(rosterBucket)
		var v rosterValue
		if text := roster.Get([]byte(key)); text != nil {
			if err := json.Unmarshal(text, &v); err != nil {
				return err
			}
		}
		if !change(&v) {
			return nil
		}
		if v.Life == "" && v.Left == "" {
			return put(tx, rosterBucket, []byte(key), nil)
		}
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return put(tx, rosterBucket, []byte(key), text)
	})
	return wrap(op, err)
}

// Entered implements store.Roster.
func (s *Store) Entered(context.Context) ([]store.RosterEntry, error) {
	var entries []store.RosterEntry
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(rosterBucket).ForEach(func(key, text []byte) error {
			var v rosterValue
			if err := json.Unmarshal(text, &v); err != nil {
				return err
			}
			if v.Life != "" {
				entries = append(entries, store.RosterEntry{Key: string(key), Life: v.Life, Doc: v.Doc})
			}
			return nil
		})
	})
	return entries, wrap("read the list of sidecars", err)
}
