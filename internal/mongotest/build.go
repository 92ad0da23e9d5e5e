package mongotest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/testbuild"
)

// slowBuild is how long an up to date FerretDB may take before the log says that it was built.
const slowBuild = 5 * time.Second

// As the steps of make test before the tests have it, which compile most of it.
var model = sync.OnceValues(testbuild.Program{
	Name: "mongomodel", Package: "./internal/mongomodel/cmd/mongomodel", Flags: []string{"-trimpath"}, Env: []string{"CGO_ENABLED=0"},
}.Build)

// ferretDB builds FerretDB where it is missing or out of date: about a minute the first time on a machine, a third of a
// second when there is nothing to do. Test processes that come together build once.
var ferretDB = sync.OnceValues(func() (string, error) {
	begin := time.Now()
	bin, err := testbuild.Program{
		Name: "mongotest-ferretdb", Dir: filepath.Join("internal", "mongotest", "ferretdb"), Package: ".",
		Flags: []string{"-tags", "ferretdb_no_postgresql", "-ldflags", "-s -w"},
		Env:   []string{"CGO_ENABLED=0", "GOWORK=off"},
		Missing: func() {
			fmt.Fprintln(os.Stderr, "mongotest: building FerretDB: the first time a minute or two, and 122 MB to download")
		},
	}.Build()
	if took := time.Since(begin); err == nil && took > slowBuild {
		fmt.Fprintf(os.Stderr, "mongotest: built FerretDB in %v\n", took.Round(time.Second))
	}
	return bin, err
})
