package processtest

import (
	"flag"
	"runtime"
	"strconv"
)

// Parallel lets twice as many tests run at once as there are processors, since tests of processes
// mostly wait. It is for a TestMain; -parallel on the command line takes precedence.
func Parallel() {
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
}
