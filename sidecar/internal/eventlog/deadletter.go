package eventlog

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// DeadLetterID begins the ids of dead letters.
const DeadLetterID = "dlq-"

// Death is why an event becomes a dead letter.
type Death struct {
	Group    string // that could not process it; "" where none had it
	Reason   string
	Attempts int
	// Which tells events apart that had the same topic, group and id.
	Which string
}

// DeadLetter is the event that goes to the dead letter topic. Its id is derived
// from what it is a dead letter of, so that burying it again after a crash
// stores it once.
func DeadLetter(src *Record, d Death, now time.Time) *Record {
	sum := sha256.Sum256([]byte(src.Topic + "\x00" + d.Group + "\x00" + src.ID + "\x00" + d.Which))
	return &Record{
		Event: wire.Event{
			ID:    DeadLetterID + hex.EncodeToString(sum[:16]),
			TS:    now.UnixMilli(),
			Topic: src.Topic + wire.DeadLetterSuffix,
			Key:   src.Key,
			Headers: src.Headers.
				With(wire.HeaderDeadReason, d.Reason).
				With(wire.HeaderDeadGroup, d.Group).
				With(wire.HeaderDeadAttempts, strconv.Itoa(d.Attempts)).
				With(wire.HeaderDeadID, src.ID),
			Tags:     src.Tags,
			CausedBy: []string{src.ID},
			SID:      src.SID,
			Payload:  src.Payload,
			Binary:   src.Binary,
		},
		AcceptedAt: now.UnixMilli(),
	}
}
