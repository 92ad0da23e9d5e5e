package mongolog

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// A sidecar cannot follow signals in a collection that is not capped.
func TestSignalsThatAreNotCapped(t *testing.T) {
	x := newIndexing(t)
	if err := x.db.CreateCollection(t.Context(), x.signalsName(3)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if uncapped, err := x.createSignals(t.Context()); err != nil || !uncapped {
			t.Fatalf("not capped: %v, %v", uncapped, err)
		}
	}
	if lines := x.lines.String(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, "is not capped") {
		t.Errorf("it logs %s", lines)
	}
	if err := x.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !x.mailboxes() {
		t.Error("signals do not go by mailboxes")
	}
	if err := x.signals(3).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // creates it, and finds it
		if uncapped, err := x.createSignals(t.Context()); err != nil || uncapped {
			t.Errorf("created: not capped %v, %v", uncapped, err)
		}
	}
}

func TestHints(t *testing.T) {
	if got := hint(fmt.Errorf("x: %w", mongo.CommandError{Code: codeNoMajorityReads})); !strings.Contains(got, "enableMajorityReadConcern") {
		t.Errorf("the hint is %q", got)
	}
	if !hasCode(mongo.CommandError{Code: 115}, notOffered...) || hasCode(mongo.CommandError{Code: codeUnauthorized}, notOffered...) {
		t.Error("notOffered")
	}
}

func TestOpenError(t *testing.T) {
	for _, c := range []struct {
		err         error
		unavailable bool
	}{
		{errors.New("no scheme in secret"), false},
		{fmt.Errorf("see: %w", &net.DNSError{Err: "server misbehaving secret", IsTemporary: true}), true},
		{fmt.Errorf("see: %w", &net.DNSError{Err: "no such host", IsNotFound: true}), false},
	} {
		err := openError(c.err, "mongodb+srv://me:secret@example.com/")
		if errors.Is(err, eventlog.ErrUnavailable) != c.unavailable || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}
