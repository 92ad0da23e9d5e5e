package processtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
)

// The programs that tests start.
var (
	Sidecar      = shipped("./sidecar/cmd/sluice-sidecar")
	ControlPlane = shipped("./controlplane/cmd/sluice-controlplane")
	Client       = shipped("./sdk/cmd/sluice")
	// MongoModel is built with the flags that earlier steps of make test use: these compile most of
	// its packages.
	MongoModel = &Program{
		Name: "mongomodel", Package: "./internal/mongomodel/cmd/mongomodel", Flags: []string{"-trimpath"}, Env: []string{"CGO_ENABLED=0"},
	}
	// FerretDB takes about a minute to build the first time on a machine, and a third of a second
	// when there is nothing to do.
	FerretDB = &Program{
		Name: "mongotest-ferretdb", Dir: filepath.Join("internal", "mongotest", "ferretdb"), Package: ".",
		Flags: []string{"-tags", "ferretdb_no_postgresql", "-ldflags", "-s -w"},
		Env:   []string{"CGO_ENABLED=0", "GOWORK=off"},
		Missing: func() {
			fmt.Fprintln(os.Stderr, "building FerretDB for tests: the first time a minute or two, and 122 MB to download")
		},
	}
)

// Programs are all of them.
var Programs = []*Program{Sidecar, ControlPlane, Client, MongoModel, FerretDB}

// shipped is a program built as by make build: the tests run the shipped program, and it is
// compiled once.
func shipped(pkg string) *Program {
	return &Program{
		Name: path.Base(pkg), Package: pkg, Flags: []string{"-trimpath", "-ldflags", "-s -w"}, Env: []string{"CGO_ENABLED=0"},
	}
}
