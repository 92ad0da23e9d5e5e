package group

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// DeadLetters appends to dead letter topics.
type DeadLetters interface {
	// Bury appends the record to its topic, which it creates if need be.
	// It takes no rate limit's tokens. done is called once: with nil when an
	// event with this id is durable there, be it from an earlier try with
	// another reason.
	Bury(ctx context.Context, rec *eventlog.Record, done func(error))
}

// DeadLetterSuffix is appended to a topic's name for its dead letters.
const DeadLetterSuffix = ".dlq"

// The headers that say where a dead letter comes from.
const (
	HeaderDeadReason   = "sluice-dlq-reason"
	HeaderDeadGroup    = "sluice-dlq-group"
	HeaderDeadAttempts = "sluice-dlq-attempts"
	HeaderDeadID       = "sluice-dlq-id"
)

// deadLetter is the event that goes to the dead letter topic. Its id is derived
// from what it is a dead letter of, so that burying it again after a crash
// stores it once.
func deadLetter(e *entry, group string, now time.Time) *eventlog.Record {
	src := e.rec
	sum := sha256.Sum256([]byte(src.Topic + "\x00" + group + "\x00" + src.ID + "\x00" + strconv.FormatUint(src.Seq, 10)))
	headers := src.Headers.
		With(HeaderDeadReason, e.reason).
		With(HeaderDeadGroup, group).
		With(HeaderDeadAttempts, strconv.Itoa(e.attempts)).
		With(HeaderDeadID, src.ID)
	return &eventlog.Record{
		Event: wire.Event{
			ID:       "dlq-" + hex.EncodeToString(sum[:16]),
			TS:       now.UnixMilli(),
			Topic:    src.Topic + DeadLetterSuffix,
			Key:      src.Key,
			Headers:  headers,
			Tags:     src.Tags,
			CausedBy: []string{src.ID},
			SID:      src.SID,
			Payload:  src.Payload,
			Binary:   src.Binary,
		},
		AcceptedAt: now.UnixMilli(),
	}
}
