package eventlog

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestLetterIDs(t *testing.T) {
	base := DeadLetterID + strings.Repeat("a", 32)
	letters := []string{base}
	for range 11 {
		letters = append(letters, NextLetter(letters[len(letters)-1]))
	}
	for i, l := range letters {
		before := ""
		if i > 0 {
			before = letters[i-1]
		}
		if StableLetterID(l) != base || Deaths(l) != i || LetterBefore(l) != before {
			t.Errorf("%s: %s, %d deaths, before it %q", l, StableLetterID(l), Deaths(l), LetterBefore(l))
		}
	}
}

// A dead letter tells what died, and where it was.
func TestReadDead(t *testing.T) {
	event := &Record{Event: wire.Event{ID: "e", TS: 7, Topic: "t", Partition: 3, Seq: 42, Key: "k", Payload: []byte("1"),
		Headers: wire.Headers{}.With("h", "v").With(wire.HeaderRedriven, "x")}}
	letter := DeadLetter(event, Death{Group: "g", Reason: "why", Attempts: 2, Which: "42"}, time.UnixMilli(100))
	d, ok := ReadDead(letter)
	if !ok || d.Group != "g" || d.Reason != "why" || d.Attempts != 2 || d.Redrive().Letter != letter.ID {
		t.Errorf("%+v", d)
	}
	e := d.Event
	placed := e.Topic == "t" && e.Partition == 3 && e.Seq == 42 && e.TS == 7
	if !placed || e.ID != "e" || e.Key != "k" || len(e.Headers) != 1 {
		t.Errorf("%+v has %+v", d, d.Event)
	}
	sum := sha256.Sum256([]byte("t\x00g\x00e\x0042"))
	if want := DeadLetterID + hex.EncodeToString(sum[:16]); letter.ID != want {
		t.Errorf("id %s, want %s", letter.ID, want)
	}

	placeless := *letter
	placeless.Headers = slices.DeleteFunc(slices.Clone(letter.Headers), func(h wire.Header) bool { return h.Name == wire.HeaderDeadSeq })
	if _, ok := ReadDead(&placeless); ok {
		t.Error("an event that does not say where the dead event was is read as a dead letter")
	}
	if _, ok := ReadDead(event); ok {
		t.Error("an ordinary event is read as a dead letter")
	}
}

// Publishers may not take the ids of dead letters, and may use all others.
func TestIsLetterID(t *testing.T) {
	base := DeadLetterID + strings.Repeat("0a", 16)
	for id, want := range map[string]bool{
		base: true, base + "-12": true, base + "-": true, base + "0": false, base + "-a": false, base[:35]: false, "dlq-1": false,
		DeadLetterID + strings.Repeat("0A", 16): false, "": false, "x" + base: false,
	} {
		if IsLetterID(id) != want {
			t.Errorf("IsLetterID(%q) = %v", id, !want)
		}
	}
	if letter := DeadLetter(&Record{}, Death{}, time.Time{}); !IsLetterID(letter.ID) || !IsLetterID(NextLetter(letter.ID)) {
		t.Errorf("%s is none", letter.ID)
	}
}
