package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// slowest is how many packages are named in the end.
const slowest = 15

// event is a line of `go test -json`; see go doc test2json for its members.
type event struct {
	Action      string
	Package     string
	ImportPath  string // in place of Package, while it is built
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// report is the state of a report.
type report struct {
	out     io.Writer
	said    map[string]map[string][]string // output by package and test; nil for tests that have passed
	order   map[string][]string            // a package's tests, in the order of their first output
	results []result
	passed  int
	skipped map[string]int // tests by reason
	failed  []string       // the output of failed packages
	broken  error
}

type result struct {
	pkg     string
	seconds float64
}

func newReport(out io.Writer) *report {
	return &report{out: out, said: map[string]map[string][]string{}, order: map[string][]string{}, skipped: map[string]int{}}
}

// read takes one line. A line of the go tool that is not an event is printed as it is.
func (r *report) read(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		r.print(string(line))
		return
	}
	switch {
	case e.Action == "output":
		r.say(e.Package, e.Test, e.Output)
	case e.Action == "build-output":
		r.say(e.ImportPath, "", e.Output)
	case e.Test != "" && e.Action == "skip":
		r.skipped[reason(r.said[e.Package][e.Test])]++
		r.forget(e.Package, e.Test)
	case e.Test != "" && e.Action == "pass":
		r.passed++
		r.forget(e.Package, e.Test)
	case e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
		r.endPackage(e)
	}
}

// frame matches the lines with which the testing package names the test.
var frame = regexp.MustCompile(`^(=== (RUN|PAUSE|CONT|NAME)\b|PASS$|FAIL$|(ok|FAIL|\?) *\t|exit status )`)

func (r *report) say(pkg, test, text string) {
	if frame.MatchString(strings.TrimSuffix(text, "\n")) {
		return
	}
	tests := r.said[pkg]
	if tests == nil {
		tests = map[string][]string{}
		r.said[pkg] = tests
	}
	if _, known := tests[test]; !known {
		r.order[pkg] = append(r.order[pkg], test)
	}
	tests[test] = append(tests[test], text)
}

// forget drops a test's output, but keeps its place in the order.
func (r *report) forget(pkg, test string) {
	if _, spoken := r.said[pkg][test]; spoken {
		r.said[pkg][test] = nil
	}
}

var place = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason is the last thing that a skipped test has logged.
func reason(said []string) string {
	for _, line := range slices.Backward(said) {
		if at := place.FindString(line); at != "" {
			return strings.TrimSpace(line[len(at):])
		}
	}
	return "no reason given"
}

func (r *report) endPackage(e event) {
	switch e.Action {
	case "pass":
		r.print(fmt.Sprintf("ok   %7.1f s  %s\n", e.Elapsed, e.Package))
	case "fail":
		text := fmt.Sprintf("FAIL %7.1f s  %s\n", e.Elapsed, e.Package) + r.all(e.FailedBuild) + r.all(e.Package)
		r.print(text)
		r.failed = append(r.failed, text)
	}
	r.results = append(r.results, result{e.Package, e.Elapsed})
	delete(r.said, e.Package)
	delete(r.order, e.Package)
}

// all is the output of a package's tests that have not passed.
func (r *report) all(pkg string) string {
	var text strings.Builder
	for _, test := range r.order[pkg] {
		for _, line := range r.said[pkg][test] {
			text.WriteString(line)
		}
	}
	return text.String()
}

func (r *report) end() {
	slices.SortStableFunc(r.results, func(a, b result) int { return cmp.Compare(b.seconds, a.seconds) })
	r.print("\nslowest packages:\n")
	for _, p := range r.results[:min(slowest, len(r.results))] {
		r.print(fmt.Sprintf("%7.1f s  %s\n", p.seconds, p.pkg))
	}
	r.print(fmt.Sprintf("\n%d tests have passed, in %d packages\n", r.passed, len(r.results)))
	if len(r.skipped) > 0 {
		r.print("\ntests that were left out:\n")
		for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
			r.print(fmt.Sprintf("%7d  %s\n", r.skipped[why], why))
		}
	}
	if len(r.failed) > 0 {
		r.print(fmt.Sprintf("\n%d of %d packages have failed:\n", len(r.failed), len(r.results)))
		for _, text := range r.failed {
			r.print(text)
		}
	}
}

func (r *report) print(text string) {
	if _, err := io.WriteString(r.out, text); err != nil && r.broken == nil {
		r.broken = err
	}
}
