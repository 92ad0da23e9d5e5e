package mongotest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/testbuild"
)

// slowBuild is how long an up to date server may take before the log says that it was built.
const slowBuild = 5 * time.Second

var serverFolder = filepath.Join("internal", "mongotest", "server")

// Binary returns the path of the server program, which it builds where that is missing or out of date: about a minute the
// first time on a machine, a third of a second when there is nothing to do. Test processes that come together build once.
var Binary = sync.OnceValues(func() (string, error) {
	begin := time.Now()
	bin, err := testbuild.Program{
		Name: "mongotest-server", Dir: serverFolder, Package: ".",
		Flags: []string{"-tags", "ferretdb_no_postgresql", "-ldflags", "-s -w"},
		Env:   []string{"CGO_ENABLED=0", "GOWORK=off"},
		Missing: func() {
			fmt.Fprintln(os.Stderr, "mongotest: building the MongoDB test server, which takes about a minute the first time (make test-server)")
		},
	}.Build()
	if took := time.Since(begin); err == nil && took > slowBuild {
		fmt.Fprintf(os.Stderr, "mongotest: built the MongoDB test server in %v\n", took.Round(time.Second))
	}
	return bin, err
})
