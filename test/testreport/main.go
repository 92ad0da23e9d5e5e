// Testreport reads the output of `go test -json` and prints a report on many packages: each
// package's result as it ends, with the output of a failed one, and in the end the slowest
// packages, the skipped tests with their reasons, and the failures once more. It does not fail
// itself: go test's exit status says whether the tests have.
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
