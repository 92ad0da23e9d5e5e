package spool

import (
	"context"
	"errors"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// erasePage bounds what is looked at of the spool at a time.
var erasePage = eventlog.Bounds{Events: 1000, Bytes: 1 << 20}

// Erase removes the events of a topic that wait, and that wanted says yes to: of
// a key, where that is not nil. It returns how many there were; they are gone for
// good. What had left the spool before the call is in the log when it returns,
// except events whose append got no answer.
func (l *Log) Erase(ctx context.Context, topic string, key *string, wanted func(*eventlog.Record) bool, r eventlog.Retention) (erased int, err error) {
	t := l.find(topic)
	if t == nil || !t.spooling.Load() {
		return 0, nil
	}
	if err := t.drain.take(ctx); err != nil { // no page is on its way to the log
		return 0, err
	}
	defer t.drain.give()
	for {
		var seqs []uint64
		var size int64
		for page, err := range eventlog.Pages(ctx, l.cfg.Store, topic, eventlog.ScanQuery{Key: key}, erasePage) {
			if errors.Is(err, eventlog.ErrNotFound) {
				return erased, nil
			}
			if err != nil {
				return erased, err
			}
			for _, rec := range page {
				if wanted(rec) {
					seqs, size = append(seqs, rec.Seq), size+int64(rec.Size())
				}
			}
			if len(seqs) >= erasePage.Events {
				break
			}
		}
		if len(seqs) == 0 {
			return erased, nil
		}
		if _, err := l.cfg.Store.Erase(ctx, topic, queue, seqs, r, l.cfg.Clock.Now().UnixMilli()); err != nil {
			return erased, err
		}
		l.account.give(t, len(seqs), size)
		erased += len(seqs)
	}
}

// turn is a lock that can be waited for until a context ends.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }
