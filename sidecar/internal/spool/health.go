package spool

import (
	"sync"
	"sync/atomic"
	"time"
)

// health knows whether the store answers. After one append without an answer it is away, so that
// the other appends need not wait for it one by one.
type health struct {
	away atomic.Bool

	mu    sync.Mutex
	since time.Time // when it went away or came back, or the spool was opened
	cause error     // of the last append or probe without an answer; nil once it is back
}

// Pauses between two probes of a store that is away.
const (
	minProbePause = 25 * time.Millisecond
	maxProbePause = time.Second
)

// lost notes that the store did not answer.
func (l *Log) lost(cause error) {
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	l.health.cause = cause
	if l.health.away.Load() {
		return
	}
	l.health.since = l.cfg.Clock.Now()
	l.health.away.Store(true)
	l.account.stopPacing()
	l.cfg.Logger.Warn("the store is away; publishes are spooled or refused, as the policies of their topics say", "error", cause)
	l.wake.Set()
}

// found notes that the store answers again.
func (l *Log) found() {
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	if !l.health.away.Load() {
		return
	}
	away := l.cfg.Clock.Since(l.health.since)
	l.health.since, l.health.cause = l.cfg.Clock.Now(), nil
	l.health.away.Store(false)
	l.cfg.Logger.Info("the store is back", "away_for", away.Round(time.Millisecond))
}

// retryAway is when to try again while the store is away. It assumes that the outage lasts as long
// again as it has lasted.
func (l *Log) retryAway() time.Duration {
	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	return min(max(l.cfg.Clock.Since(l.health.since), maxProbePause/4), 5*maxProbePause)
}

func (l *Log) refusal() error { return &AwayError{RetryAfter: l.retryAway()} }
