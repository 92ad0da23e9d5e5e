package processtest

import "path"

// The programs that tests start.
var (
	Sidecar      = shipped("./sidecar/cmd/sluice-sidecar")
	ControlPlane = shipped("./controlplane/cmd/sluice-controlplane")
	Client       = shipped("./sdk/cmd/sluice")
	// MongoModel is built with the flags that earlier steps of make test use: these compile most of
	// its packages.
	MongoModel = &Program{
		Name: "mongomodel", Package: "./test/mongomodel/cmd/mongomodel", Flags: []string{"-trimpath"}, Env: []string{"CGO_ENABLED=0"},
	}
)

// Programs are all of them.
var Programs = []*Program{Sidecar, ControlPlane, Client, MongoModel}

// shipped is a program built as by make build: the tests run the shipped program, and it is
// compiled once.
func shipped(pkg string) *Program {
	return &Program{
		Name: path.Base(pkg), Package: pkg, Flags: []string{"-trimpath", "-ldflags", "-s -w"}, Env: []string{"CGO_ENABLED=0"},
	}
}
