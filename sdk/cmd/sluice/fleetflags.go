package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// fleetFlags say whose history is wanted.
type fleetFlags struct {
	Scope   string `enum:"store,fleet" default:"store" help:"Whose events: store (this sidecar's store) or fleet (all sidecars')."`
	Fleet   bool   `help:"The same as --scope fleet."`
	Partial bool   `help:"With --fleet: leave out sidecars and stores that do not answer, and name them. Otherwise they are an error."`
}

// scope is what the flags say together.
func (f *fleetFlags) scope() (string, error) {
	if f.Fleet {
		f.Scope = "fleet"
	}
	if f.Partial && f.Scope != "fleet" {
		return "", program.Usagef("--partial goes with --fleet: a store is either read or not")
	}
	return f.Scope, nil
}

// explain prints which parts of a fleet cannot be asked, and adds to the error how to leave them
// out.
func (f *fleetFlags) explain(stderr io.Writer, err error) error {
	refusal, ok := errors.AsType[*wire.Error](err)
	if !ok || refusal.Code != wire.PartialFleet {
		return err
	}
	sayMissing(stderr, refusal.Missing)
	if f.Partial { // it was all there when it began
		return err
	}
	return fmt.Errorf("%w (here: --partial)", err)
}

// errMissing ends the printing of a part of the fleet.
var errMissing = partError{errors.New("the answer is of a part of the fleet")}

// sayMissing prints the parts that an answer left out.
func sayMissing(stderr io.Writer, names []string) {
	if len(names) > 0 {
		fmt.Fprintf(stderr, "missing: %s\n", nameList(names)) // there is nowhere else to say it
	}
}

func nameList(names []string) string {
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = plain(name)
	}
	return strings.Join(shown, ", ")
}
