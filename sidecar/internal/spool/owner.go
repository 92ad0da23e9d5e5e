package spool

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// ownerText is the text beside the events that names their store: the JSON of owner.
const ownerText = "store"

// owner is the store that a spool is for.
type owner struct {
	ID  string `json:"id"` // "" while it was never reached
	URL string `json:"url"`
}

// ownership knows which store the spool is for. Events for one store never go into another store,
// nor into a spool with events for another store.
type ownership struct {
	owner owner // Run's alone
	known bool  // the store was reached, and is the spool's store; Run's alone
	// trusted says that more events may be spooled: the spool was empty, or --store has not
	// changed, or the store is known.
	trusted atomic.Bool
}

// ForeignError refuses a spool that has events for another store.
type ForeignError struct {
	Folder string
	Events int

	filled owner // the store that the events are for
	given  owner // the store in use
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("store: the spool in %s has %d events for another store, %s with the id %s, and not for %s with the id %s: "+
		"start with the other --store until the spool is empty, or move the folder away",
		e.Folder, e.Events, e.filled.URL, e.filled.ID, e.given.URL, e.given.ID)
}

// claim finds out at the start which store the spool is for. An empty spool is for any store, and
// so is one that was filled while no store was known.
func (l *Log) claim() error {
	text, err := l.cfg.Store.Text(ownerText)
	if err != nil {
		return err
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &l.own.owner); err != nil {
			return fmt.Errorf("the spool's owner is damaged: %w", err)
		}
	}
	events := l.Stats().Events
	if was := l.own.owner; events > 0 && was.ID != "" && was.URL != l.cfg.StoreURL {
		l.cfg.Logger.Warn("the spool has events for another --store; "+
			"nothing more is spooled until the store is reached, and known to be the same", "events", events, "folder", l.cfg.Folder, "of", was.URL,
			"store", l.cfg.StoreURL)
		return nil
	}
	l.own.trusted.Store(true)
	if events == 0 {
		return l.own.write(l.cfg.Store, owner{URL: l.cfg.StoreURL})
	}
	return nil
}

// reach returns nil if the store answers, and is the spool's store.
func (l *Log) reach(ctx context.Context) error {
	if err := l.ping(ctx); err != nil || l.own.known {
		return err
	}
	now, was := owner{ID: l.cfg.StoreID(), URL: l.cfg.StoreURL}, l.own.owner
	if was.ID != "" && was.ID != now.ID {
		l.own.trusted.Store(false)
		return &ForeignError{Folder: l.cfg.Folder, Events: l.Stats().Events, filled: was, given: now}
	}
	if err := l.own.write(l.cfg.Store, now); err != nil {
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, &spoolError{err})
	}
	l.own.known = true
	l.own.trusted.Store(true)
	return nil
}

// write records which store the spool is for.
func (o *ownership) write(s Store, now owner) error {
	if now == o.owner {
		return nil
	}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if err := s.SetText(ownerText, text); err != nil {
		return err
	}
	o.owner = now
	return nil
}
