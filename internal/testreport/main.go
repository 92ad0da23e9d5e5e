// Testreport reads what `go test -json` prints and says of it what one wants to know of many packages: each package's result
// as it ends, with what was said where it failed, and in the end the slowest packages, what was left out and why, and the
// failures once more. It does not fail itself: go test's exit status says whether the tests have.
package main

import (
	"bufio"
	"fmt"
	"os"
)

func main() {
	r := newReport(os.Stdout)
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		r.read(line)
		if err != nil {
			break
		}
	}
	r.end()
	if r.broken != nil {
		fmt.Fprintln(os.Stderr, "testreport:", r.broken)
		os.Exit(1)
	}
}
