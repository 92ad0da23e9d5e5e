package logging_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/logging"
)

func TestTheLastWarningsAreKept(t *testing.T) {
	var out strings.Builder
	silent, kept := logging.Keep(slog.DiscardHandler, 3)
	slog.New(silent).Warn("only kept")
	if lines, _ := kept.Lines(); len(lines) != 1 {
		t.Errorf("kept %q", lines)
	}
	handler, recent := logging.Keep(slog.NewTextHandler(&out, nil), 3)
	log := slog.New(handler).With("node", "n1")
	for i := range 5 {
		log.Warn("trouble", "n", i)
		log.Info("no trouble")
	}
	log.WithGroup("of").Error("more", "n", 5)
	lines, written := recent.Lines()
	if written != 6 || len(lines) != 3 || strings.Count(out.String(), "\n") != 11 {
		t.Fatalf("%d written, kept %q of\n%s", written, lines, &out)
	}
	for i, want := range []string{"level=WARN msg=trouble node=n1 n=3", "n=4", "level=ERROR msg=more node=n1 of.n=5"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
	lines[0] = "changed"
	if again, _ := recent.Lines(); again[0] == "changed" {
		t.Error("the lines belong to the caller")
	}
	if none, _ := (*logging.Recent)(nil).Lines(); fmt.Sprint(none) != "[]" {
		t.Error("nothing keeps nothing")
	}
}
