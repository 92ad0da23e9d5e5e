package mongolog

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// A collection of signals that is not capped cannot be followed, and is replaced.
func TestSignalsThatAreNotCapped(t *testing.T) {
	x := newIndexing(t)
	if err := x.db.CreateCollection(t.Context(), x.signalsName(3)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := x.createSignals(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if lines := x.lines.String(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, "is not capped") {
		t.Errorf("it logs %s", lines)
	}
	specs, err := x.db.ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: x.signalsName(3)}})
	if err != nil || len(specs) != 1 || !specs[0].Options.Lookup("capped").Boolean() {
		t.Errorf("the collection is now %+v, %v", specs, err)
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
