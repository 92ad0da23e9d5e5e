package eventlog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// DeadLetterID begins the ids of dead letters.
const DeadLetterID = "dlq-"

// letterIDBytes is the length of the stable part of a dead letter's id. A dead letter that is
// redriven and dies again becomes dlq-X-1, dlq-X-2 and so on after dlq-X. Once a death is recorded
// only the last of these events exists.
const letterIDBytes = len(DeadLetterID) + 32

// StableLetterID is the part of a dead letter's event id that stays the same when it dies again.
func StableLetterID(letter string) string { return letter[:min(len(letter), letterIDBytes)] }

// Deaths counts the earlier deaths of the dead letter with that event id.
func Deaths(letter string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(letter[len(StableLetterID(letter)):], "-"))
	return n
}

// NextLetter is the event id of a dead letter after it was redriven and died again.
func NextLetter(letter string) string {
	return StableLetterID(letter) + "-" + strconv.Itoa(Deaths(letter)+1)
}

// LetterBefore is the event id of the same dead letter at its previous death, or "" at its first.
func LetterBefore(letter string) string {
	switch n := Deaths(letter); n {
	case 0:
		return ""
	case 1:
		return StableLetterID(letter)
	default:
		return StableLetterID(letter) + "-" + strconv.Itoa(n-1)
	}
}

// Death says why an event becomes a dead letter.
type Death struct {
	Group    string // the group that could not process it; "": no group had it
	Reason   string
	Attempts int
	// Which distinguishes events with the same topic, group and id.
	Which string
	// Redriven is the id of the dead letter that was redriven, or "" if the event came from its
	// topic.
	Redriven string
}

// DeadLetter makes the event for the dead letter topic. Its id is derived from the dead event, so
// that the log stores it once even if it is appended again after a crash.
func DeadLetter(src *Record, d Death, now time.Time) *Record {
	id := NextLetter(d.Redriven)
	if d.Redriven == "" {
		id = letterID(src.Topic, d.Group, src.ID, d.Which)
	}
	return &Record{
		Event: wire.Event{
			ID:    id,
			TS:    now.UnixMilli(),
			Topic: src.Topic + wire.DeadLetterSuffix,
			Key:   src.Key,
			Headers: withoutRedriven(src.Headers).
				With(wire.HeaderDeadReason, d.Reason).
				With(wire.HeaderDeadGroup, d.Group).
				With(wire.HeaderDeadAttempts, strconv.Itoa(d.Attempts)).
				With(wire.HeaderDeadTopic, src.Topic).
				With(wire.HeaderDeadID, src.ID).
				With(wire.HeaderDeadPartition, strconv.Itoa(src.Partition)).
				With(wire.HeaderDeadSeq, strconv.FormatUint(src.Seq, 10)).
				With(wire.HeaderDeadTS, strconv.FormatInt(src.TS, 10)),
			Tags:     src.Tags,
			CausedBy: []string{src.ID},
			SID:      src.SID,
			Payload:  src.Payload,
			Binary:   src.Binary,
		},
		AcceptedAt: now.UnixMilli(),
	}
}

func withoutRedriven(h wire.Headers) wire.Headers {
	return slices.DeleteFunc(slices.Clone(h), func(x wire.Header) bool { return x.Name == wire.HeaderRedriven })
}

func letterID(topic, group, id, which string) string {
	sum := sha256.Sum256([]byte(topic + "\x00" + group + "\x00" + id + "\x00" + which))
	return DeadLetterID + hex.EncodeToString(sum[:16])
}

// IsLetterID reports whether an id has the form of a dead letter's. Publishers may not use such ids: theirs would take the
// places of dead letters in a topic that has both.
func IsLetterID(id string) bool {
	if !strings.HasPrefix(id, DeadLetterID) || len(id) < letterIDBytes {
		return false
	}
	deaths := id[letterIDBytes:]
	return strings.Trim(id[len(DeadLetterID):letterIDBytes], "0123456789abcdef") == "" &&
		(deaths == "" || deaths[0] == '-' && strings.Trim(deaths[1:], "0123456789") == "")
}

// IsDeadLetter recognizes the events that Sluice itself publishes to topics for dead letters, whatever their names are.
func IsDeadLetter(r *Record) bool {
	_, named := r.Headers.Get(wire.HeaderDeadID)
	return named && strings.HasPrefix(r.ID, DeadLetterID)
}

// Dead is the content of a dead letter.
type Dead struct {
	Letter   *Record // as it is in the dead letter topic
	ID       string  // StableLetterID
	Group    string  // "" if no group had the event
	Reason   string
	Attempts int
	Event    *Record // the event that died; its seq is 0 if it never came into its topic
}

// ReadDead reads a dead letter; false if the event is none, or does not say where the dead event
// was: other events may be in its topic, too.
func ReadDead(r *Record) (d Dead, ok bool) {
	if !IsDeadLetter(r) {
		return d, false
	}
	header := func(name string) string { v, _ := r.Headers.Get(name); return v }
	d = Dead{Letter: r, ID: StableLetterID(r.ID), Group: header(wire.HeaderDeadGroup), Reason: header(wire.HeaderDeadReason)}
	d.Attempts, _ = strconv.Atoi(header(wire.HeaderDeadAttempts))
	event := *r
	event.Topic, event.ID, event.CausedBy = header(wire.HeaderDeadTopic), header(wire.HeaderDeadID), nil
	var errs [3]error
	event.Partition, errs[0] = strconv.Atoi(header(wire.HeaderDeadPartition))
	event.Seq, errs[1] = strconv.ParseUint(header(wire.HeaderDeadSeq), 10, 64)
	event.TS, errs[2] = strconv.ParseInt(header(wire.HeaderDeadTS), 10, 64)
	if errors.Join(errs[:]...) != nil || event.Topic == "" {
		return d, false
	}
	event.Headers = slices.DeleteFunc(slices.Clone(r.Headers),
		func(h wire.Header) bool { return strings.HasPrefix(h.Name, wire.HeaderDeadAll) })
	d.Event = &event
	return d, true
}

// Redrive is the request to deliver the dead letter again.
func (d *Dead) Redrive() Redrive {
	return Redrive{GroupPartition: GroupPartition{d.Event.Topic, d.Group, d.Event.Partition}, Seq: d.Event.Seq, Letter: d.Letter.ID}
}
