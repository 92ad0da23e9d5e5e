package sidecar

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
	"github.com/sluice-bus/sluice/sidecar/internal/capture"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// validateCaptures checks the settings of captured collections.
func (c Config) validateCaptures() (errs []error) {
	topics := map[string]bool{}
	for _, text := range c.Captures {
		src, err := capture.ParseSource(text, c.Store)
		inStore := src.URL == c.Store && src.Database == c.storeDatabase()
		switch {
		case err != nil:
		case inStore && (mongolog.Owns(src.Collection) || src.Collection == capture.Places):
			err = fmt.Errorf("%s is a collection of the event log itself", src.Namespace())
		case topics[src.Topic]:
			err = fmt.Errorf("%s is captured to the topic %s, as another one is", src.Namespace(), src.Topic)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("capture: %w", err))
		}
		topics[src.Topic] = true
	}
	return errs
}

// storeDatabase is the database of the log in a shared store.
func (c Config) storeDatabase() string {
	return cmp.Or(capture.DatabaseOf(c.Store), mongolog.DefaultDatabase)
}

// reread makes the capture to a topic publish all documents once more.
func (s *Sidecar) reread(ctx context.Context, topic string) error {
	var topics []string
	for _, c := range s.captures {
		if other := c.Stats().Topic; other != topic {
			topics = append(topics, other)
			continue
		}
		if err := c.Reread(ctx); err != nil {
			s.cfg.Logger.Warn("a re-read cannot be asked for", "topic", topic, "error", err)
			return &wire.Error{
				Code: wire.StoreUnavailable, RetryAfter: time.Second,
				Msg: "the place of the capture cannot be saved now; try again later",
			}
		}
		return nil
	}
	return wire.Errorf(wire.NotFound, "this sidecar captures no collection to the topic %q (--capture)%s", topic, nearest.Known(topic, topics))
}

// openCaptures makes a capture of each collection.
func (s *Sidecar) openCaptures(context.Context) error {
	for _, text := range s.cfg.Captures {
		src, err := capture.ParseSource(text, s.cfg.Store)
		if err != nil {
			return &ConfigError{Err: fmt.Errorf("capture: %w", err)}
		}
		cfg := capture.Config{
			Source: src, NodeID: s.cfg.NodeID, Limits: s.cfg.limits(), Logger: s.cfg.Logger,
			Roster:    s.store.Roster(),
			File:      filepath.Join(s.cfg.DataDir, capture.PlacesFile),
			Publisher: s.publisher.NewSource(nil, s.audit.Source("capture "+src.Namespace())),
			Observer:  s.metrics.Capture(src.Namespace(), src.Topic),
		}
		if setting.IsMongoDB(s.cfg.Store) {
			cfg.Store, cfg.Database = s.cfg.Store, s.cfg.storeDatabase()
		}
		c, err := capture.New(cfg)
		if err != nil {
			return &ConfigError{Err: err}
		}
		s.captures = append(s.captures, c)
	}
	return nil
}

func (s *Sidecar) captureStats() (stats []telemetry.CaptureStat) {
	for _, c := range s.captures {
		x := c.Stats()
		stats = append(stats, telemetry.CaptureStat{Capture: x.Capture, Topic: x.Topic, Stopped: x.Stopped, Lag: x.Lag})
	}
	return stats
}
