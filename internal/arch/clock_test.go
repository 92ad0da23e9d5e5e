package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

// timed are the packages that take their time from a clock that they are given, so that a
// simulation can stop the time of one sidecar while that of others goes on.
var timed = []string{
	"internal/mongowatch",
	"sidecar/internal/admit",
	"sidecar/internal/capture",
	"sidecar/internal/eventlog",
	"sidecar/internal/eventlog/mongolog",
	"sidecar/internal/eventlog/mongolog/appends",
	"sidecar/internal/eventlog/mongolog/core",
	"sidecar/internal/eventlog/mongolog/epochs",
	"sidecar/internal/eventlog/mongolog/events",
	"sidecar/internal/eventlog/mongolog/heads",
	"sidecar/internal/eventlog/mongolog/nodes",
	"sidecar/internal/eventlog/mongolog/reads",
	"sidecar/internal/eventlog/mongolog/removal",
	"sidecar/internal/eventlog/mongolog/scheduled",
	"sidecar/internal/eventlog/mongolog/setup",
	"sidecar/internal/eventlog/mongolog/signals",
	"sidecar/internal/eventlog/mongolog/topics",
	"sidecar/internal/group",
	"sidecar/internal/group/dispatch",
	"sidecar/internal/group/ownership",
	"sidecar/internal/limit",
	"sidecar/internal/outbox",
	"sidecar/internal/pacer",
	"sidecar/internal/retention",
	"sidecar/internal/roster",
	"sidecar/internal/spool",
	"sidecar/internal/tail",
	"sidecar/internal/wakeup",
	"sidecar/internal/writer",
}

// takesTime are the functions that go by the system's clock.
var takesTime = map[string][]string{
	"time":                     {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"},
	"context":                  {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
	module + "/internal/pause": {"For", "Unless"},
	module + "/internal/clock": {"System"},
}

func TestTimeIsTakenFromTheClock(t *testing.T) {
	for _, folder := range timed {
		files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s has no files: %v", folder, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := os.ReadFile(name)
			require.NoError(t, err)
			for _, call := range systemTime(t, name, source) {
				t.Errorf("%s uses %s; take the time from the package's clock.Clock", name, call)
			}
		}
	}
}

func TestSystemTimeIsFound(t *testing.T) {
	const source = `package p
import ("time"; "context"; rest "github.com/sluice-bus/sluice/internal/pause")
var now = time.Now
func f(ctx context.Context, clock interface{ Now() time.Time }) {
	_ = clock.Now()
	_ = time.Duration(1).Seconds()
	rest.For(ctx, time.Second)
	context.WithTimeout(ctx, 0)
	context.WithCancel(ctx)
}`
	if got, want := systemTime(t, "p.go", []byte(source)), []string{"time.Now", "rest.For", "context.WithTimeout"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// systemTime are the uses of takesTime in a file.
func systemTime(t *testing.T, name string, source []byte) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	banned := map[string][]string{} // by the name that the package has in the file
	for _, spec := range file.Imports {
		importPath := strings.Trim(spec.Path.Value, `"`)
		local := importPath[strings.LastIndexByte(importPath, '/')+1:]
		if spec.Name != nil {
			local = spec.Name.Name
		}
		banned[local] = takesTime[importPath]
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && slices.Contains(banned[x.Name], s.Sel.Name) {
				found = append(found, x.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	return found
}
