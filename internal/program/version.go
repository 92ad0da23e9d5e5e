package program

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the Makefile through the linker's -X; Version says what else is used.
var version string

// Version is the version that this program was built as: the one given to the linker, else the
// module version that the Go tool recorded (which carries the commit where it was built in a
// repository), else "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func versionLine(name string) string {
	return fmt.Sprintf("%s %s (%s, %s/%s)", name, Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
