package eventlog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Erasure selects the events of a topic that are erased. It is stored as a mark without a group, so
// that erased events in the spools of other sidecars do not come into the log later. The mark has a
// digest of the value, since ids and keys may be personal data.
type Erasure struct {
	Topic string
	By    ErasedBy
	Value string
}

// ErasedBy says by which property an erasure selects events.
type ErasedBy string

// The properties by which an erasure selects events.
const (
	ErasedByID  ErasedBy = "id"
	ErasedByKey ErasedBy = "key"
	// Dead letters of a topic, TOPIC/ID or TOPIC/KEY: a topic may have dead letters of several.
	ErasedByDeadID  ErasedBy = "dead"
	ErasedByDeadKey ErasedBy = "dead_key"
)

// OfDeadLetters is the same erasure, by id or key, of the events' dead letters in a topic.
func (e Erasure) OfDeadLetters(in string) Erasure {
	by := ErasedByDeadID
	if e.By == ErasedByKey {
		by = ErasedByDeadKey
	}
	return Erasure{Topic: in, By: by, Value: e.Topic + "/" + e.Value}
}

// erasureKept is how long an erasure applies to events in spools.
const erasureKept = 365 * 24 * time.Hour

// Key is the key of all erased events; nil if the erasure is not by key.
func (e Erasure) Key() *string {
	switch e.By {
	case ErasedByKey:
		return &e.Value
	case ErasedByDeadKey:
		_, key, _ := strings.Cut(e.Value, "/")
		return &key
	}
	return nil
}

// Covers reports whether the erasure selects an event of its topic.
func (e Erasure) Covers(r *Record) bool {
	value, has := erasedBy(r, e.By)
	return has && value == e.Value
}

// erasedBy is the value of a record that an erasure is compared with; false if the record has none.
func erasedBy(r *Record, by ErasedBy) (value string, has bool) {
	switch by {
	case ErasedByID:
		return r.ID, true
	case ErasedByKey:
		return r.Key, r.Key != ""
	}
	topic, dead := r.Headers.Get(wire.HeaderDeadTopic)
	value, _ = r.Headers.Get(wire.HeaderDeadID)
	if by == ErasedByDeadKey {
		value, dead = r.Key, dead && r.Key != ""
	}
	return topic + "/" + value, dead
}

// Mark is the stored form of an erasure: it erases events accepted up to a time (milliseconds since
// the epoch).
func (e Erasure) Mark(at int64) Mark {
	return Mark{Topic: e.Topic, ID: e.mark(), ExpiresAt: at + erasureKept.Milliseconds()}
}

func (e Erasure) mark() string {
	sum := sha256.Sum256([]byte(string(e.By) + "/" + e.Value))
	return hex.EncodeToString(sum[:])
}

// Marked is Groups' method.
type Marked func(ctx context.Context, topic, group string, ids []string, now int64) ([]bool, error)

// Erased reports for each event of a topic whether an erasure selects it that was marked when the
// event was accepted or later, by the sidecars' clocks.
func Erased(ctx context.Context, marked Marked, topic string, recs []*Record) ([]bool, error) {
	erased := make([]bool, len(recs))
	if len(recs) == 0 {
		return erased, nil
	}
	oldest := recs[0].AcceptedAt
	of := map[string][]int{} // indexes, by mark
	var marks []string
	for i, r := range recs {
		oldest = min(oldest, r.AcceptedAt)
		for _, by := range []ErasedBy{ErasedByID, ErasedByKey, ErasedByDeadID, ErasedByDeadKey} {
			if value, has := erasedBy(r, by); has {
				mark := Erasure{By: by, Value: value}.mark()
				if of[mark] == nil {
					marks = append(marks, mark)
				}
				of[mark] = append(of[mark], i)
			}
		}
	}
	// The store considers a mark in force until the mark expires. An event accepted at acceptedAt
	// is erased if the mark was made then or later, so the question is whether the mark is in force
	// at acceptedAt plus erasureKept, less 1 ms.
	inForce := func(marks []string, acceptedAt int64) ([]bool, error) {
		return marked(ctx, topic, "", marks, acceptedAt+erasureKept.Milliseconds()-1)
	}
	found, err := inForce(marks, oldest)
	if err != nil {
		return nil, err
	}
	for m, mark := range marks {
		if !found[m] {
			continue
		}
		its := of[mark]
		slices.SortFunc(its, func(i, j int) int { return cmp.Compare(recs[i].AcceptedAt, recs[j].AcceptedAt) })
		first := sort.Search(len(its), func(n int) bool { // the first that is not erased
			var one []bool
			if err == nil {
				one, err = inForce([]string{mark}, recs[its[n]].AcceptedAt)
			}
			return err == nil && !one[0]
		})
		if err != nil {
			return nil, err
		}
		for _, i := range its[:first] {
			erased[i] = true
		}
	}
	return erased, nil
}
