package eventlogtest

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// testLifetime: every method refuses a context that is over, and every call once the log is closed.
func testLifetime(t *testing.T, s *suite) {
	topic := s.topic(t, 1)
	s.stored(t, topic, 0, Event("a"))
	own := epoch(topic, "g", 0, 1, "n")
	calls := map[string]func(ctx context.Context) error{
		"EnsureTopic": func(ctx context.Context) error { return errOf(s.log.EnsureTopic(ctx, "new", 1)) },
		"Append":      func(ctx context.Context) error { return s.log.Append(ctx, topic, 0, Events("b", 1))[0].Err },
		"Topics":      func(ctx context.Context) error { return errOf(s.log.Topics(ctx)) },
		"CountTopics": func(ctx context.Context) error {
			_, _, err := s.log.CountTopics(ctx, "")
			return err
		},
		"LookupTopic": func(ctx context.Context) error { return errOf(s.log.LookupTopic(ctx, topic)) },
		"Extents":     func(ctx context.Context) error { return errOf(s.log.Extents(ctx, topic)) },
		"Holdings":    func(ctx context.Context) error { return errOf(s.log.Holdings(ctx, []string{topic})) },
		"Read":        func(ctx context.Context) error { return errOf(s.log.Read(ctx, topic, 0, 1, everything)) },
		"Scan": func(ctx context.Context) error {
			return errOf(s.log.Scan(ctx, topic, eventlog.ScanQuery{}, everything))
		},
		"Locate":      func(ctx context.Context) error { return errOf(s.log.Locate(ctx, topic, "a")) },
		"Lookup":      func(ctx context.Context) error { return errOf(s.log.Lookup(ctx, topic, "a")) },
		"LatestByKey": func(ctx context.Context) error { return errOf(LatestByKey(ctx, s.log, topic, "k")) },
		"Seek": func(ctx context.Context) error {
			return errOf(s.log.Seek(ctx, topic, eventlog.Position{From: wire.FromLatest}))
		},
		"ListGroups":   func(ctx context.Context) error { return errOf(s.log.ListGroups(ctx, topic)) },
		"GroupsOf":     func(ctx context.Context) error { return errOf(s.log.GroupsOf(ctx, []string{topic})) },
		"LatestEpochs": func(ctx context.Context) error { return errOf(s.log.LatestEpochs(ctx, topic, "g")) },
		"AllEpochs":    func(ctx context.Context) error { return errOf(s.log.AllEpochs(ctx)) },
		"Backlog":      func(ctx context.Context) error { return errOf(s.log.Backlog(ctx, []eventlog.Hint{{Topic: topic}})) },
		"TakeEpochs":   func(ctx context.Context) error { return s.log.TakeEpochs(ctx, []eventlog.Epoch{own})[0] },
		"SaveEpochs":   func(ctx context.Context) error { return s.log.SaveEpochs(ctx, []eventlog.Epoch{own}, nil) },
		"Sync":         func(ctx context.Context) error { return s.log.Sync(ctx) },
		"Marked":       func(ctx context.Context) error { return errOf(s.log.Marked(ctx, topic, "g", []string{"a"}, 0)) },
		"Sweep": func(ctx context.Context) error {
			_, _, err := s.log.Sweep(ctx, topic, eventlog.Retention{TTLMS: 1}, start+hour, 1)
			return err
		},
		"Compact": func(ctx context.Context) error {
			_, _, err := s.log.Compact(ctx, topic, 0, 1, keepAll)
			return err
		},
		"DeleteTopic": func(ctx context.Context) error { return s.log.DeleteTopic(ctx, topic) },
		"Gone": func(ctx context.Context) error {
			_, _, err := s.log.Gone(ctx, []string{topic}, []eventlog.GroupName{{Topic: topic, Group: "g"}})
			return err
		},
		"ForgetGroup": func(ctx context.Context) error { return s.log.ForgetGroup(ctx, topic, "none") },
		"Erase": func(ctx context.Context) error {
			return errOf(s.log.Erase(ctx, topic, 0, []uint64{1}, eventlog.Retention{}, start))
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
