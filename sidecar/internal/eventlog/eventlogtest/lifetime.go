package eventlogtest

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// testLifetime: every method refuses a context that is over, and everything
// once the log is closed.
func testLifetime(t *testing.T, s *suite) {
	topic := s.topic(t, 1)
	s.stored(t, topic, 0, Event("a"))
	own := epoch(topic, "g", 0, 1, "n")
	calls := map[string]func(ctx context.Context) error{
		"EnsureTopic": func(ctx context.Context) error { _, err := s.log.EnsureTopic(ctx, "new", 1); return err },
		"Append": func(ctx context.Context) error {
			return s.log.Append(ctx, topic, 0, []*eventlog.Record{Event("b")})[0].Err
		},
		"Topics":      func(ctx context.Context) error { _, err := s.log.Topics(ctx); return err },
		"LookupTopic": func(ctx context.Context) error { _, err := s.log.LookupTopic(ctx, topic); return err },
		"Extents":     func(ctx context.Context) error { _, err := s.log.Extents(ctx, topic); return err },
		"Read":        func(ctx context.Context) error { _, err := s.log.Read(ctx, topic, 0, 1, everything); return err },
		"Scan": func(ctx context.Context) error {
			_, err := s.log.Scan(ctx, topic, eventlog.ScanQuery{}, everything)
			return err
		},
		"Lookup":      func(ctx context.Context) error { _, err := s.log.Lookup(ctx, topic, "a"); return err },
		"LatestByKey": func(ctx context.Context) error { _, err := LatestByKey(ctx, s.log, topic, "k"); return err },
		"Seek": func(ctx context.Context) error {
			_, err := s.log.Seek(ctx, topic, eventlog.Position{From: wire.FromLatest})
			return err
		},
		"ListGroups":   func(ctx context.Context) error { _, err := s.log.ListGroups(ctx, topic); return err },
		"LatestEpochs": func(ctx context.Context) error { _, err := s.log.LatestEpochs(ctx, topic, "g"); return err },
		"AllEpochs":    func(ctx context.Context) error { _, err := s.log.AllEpochs(ctx); return err },
		"Backlog": func(ctx context.Context) error {
			_, err := s.log.Backlog(ctx, []eventlog.Hint{{Topic: topic}})
			return err
		},
		"TakeEpochs": func(ctx context.Context) error { return s.log.TakeEpochs(ctx, []eventlog.Epoch{own})[0] },
		"SaveEpochs": func(ctx context.Context) error { return s.log.SaveEpochs(ctx, []eventlog.Epoch{own}, nil) },
		"Sync":       func(ctx context.Context) error { return s.log.Sync(ctx) },
		"Marked": func(ctx context.Context) error {
			_, err := s.log.Marked(ctx, topic, "g", []string{"a"}, 0)
			return err
		},
		"Sweep": func(ctx context.Context) error {
			_, _, err := s.log.Sweep(ctx, topic, eventlog.Retention{TTLMS: 1}, start+hour, 1)
			return err
		},
		"Compact": func(ctx context.Context) error {
			_, _, err := s.log.Compact(ctx, topic, 0, 1, keepAll)
			return err
		},
		"DeleteTopic": func(ctx context.Context) error { return s.log.DeleteTopic(ctx, topic) },
		"ForgetGroup": func(ctx context.Context) error { return s.log.ForgetGroup(ctx, topic, "none") },
		"Erase": func(ctx context.Context) error {
			_, err := s.log.Erase(ctx, topic, 0, []uint64{1}, eventlog.Retention{}, start)
			return err
		},
		"SweepMarks": func(ctx context.Context) error { _, _, err := s.log.SweepMarks(ctx, 0, 1); return err },
	}
	t.Run("a finished context", func(t *testing.T) {
		for name, call := range calls {
			if err := call(ended()); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v; want context.Canceled", name, err)
			}
		}
		if err := calls["Append"](ended()); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("Append: %v; want ErrUnavailable", err)
		}
		if got := ids(s.readAll(t, topic, 0)); len(got) > 2 {
			t.Errorf("the topic holds %q", got)
		}
	})
	t.Run("an append that was given up may be repeated", func(t *testing.T) {
		for _, fresh := range []bool{false, true} {
			e := Event("given up", func(r *eventlog.Record) { r.FreshID = fresh })
			s.log.Append(ended(), topic, 0, []*eventlog.Record{e})
			s.append(t, topic, 0, e)
		}
		n := 0
		for _, e := range s.readAll(t, topic, 0) {
			if e.ID == "given up" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("it is stored %d times", n)
		}
	})
	t.Run("a closed log", func(t *testing.T) {
		if err := s.log.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		for name, call := range calls {
			if err := call(t.Context()); !errors.Is(err, eventlog.ErrUnavailable) {
				t.Errorf("%s: %v; want ErrUnavailable", name, err)
			}
		}
		if err := s.log.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
	})
}
