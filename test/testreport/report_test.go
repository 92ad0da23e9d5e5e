package main

import (
	"strings"
	"testing"
)

// printed is output of go test -json of three packages, shortened: one passes with a skipped test,
// one fails in a subtest, one is not built.
const printed = `{"Action":"start","Package":"m/a"}
{"Action":"output","Package":"m/a","Test":"TestNoise","Output":"=== RUN   TestNoise\n"}
{"Action":"output","Package":"m/a","Test":"TestNoise","Output":"    a_test.go:3: noise\n"}
{"Action":"pass","Package":"m/a","Test":"TestNoise","Elapsed":0}
{"Action":"output","Package":"m/a","Test":"TestBrowser","Output":"=== RUN   TestBrowser\n"}
{"Action":"output","Package":"m/a","Test":"TestBrowser","Output":"    a_test.go:4: there is no browser\n"}
{"Action":"output","Package":"m/a","Test":"TestBrowser","Output":"--- SKIP: TestBrowser (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestBrowser","Elapsed":0}
{"Action":"output","Package":"m/a","Output":"PASS\n"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t1.250s\n"}
{"Action":"pass","Package":"m/a","Elapsed":1.25}
{"Action":"output","Package":"m/b","Test":"TestGood","Output":"    b_test.go:5: quiet\n"}
{"Action":"output","Package":"m/b","Test":"TestBad/sub","Output":"    b_test.go:7: want 1\n"}
{"Action":"pass","Package":"m/b","Test":"TestGood","Elapsed":0}
{"Action":"output","Package":"m/b","Test":"TestBad/sub","Output":"        got 2\n"}
{"Action":"fail","Package":"m/b","Test":"TestBad/sub","Elapsed":0}
{"Action":"output","Package":"m/b","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"m/b","Test":"TestBad","Elapsed":0}
{"Action":"output","Package":"m/b","Output":"FAIL\n"}
{"Action":"output","Package":"m/b","Output":"FAIL\tm/b\t20.000s\n"}
{"Action":"fail","Package":"m/b","Elapsed":20}
{"ImportPath":"m/c [m/c.test]","Action":"build-output","Output":"c/c_test.go:3:26: undefined: x\n"}
{"ImportPath":"m/c [m/c.test]","Action":"build-fail"}
{"Action":"output","Package":"m/c","Output":"FAIL\tm/c [build failed]\n"}
{"Action":"fail","Package":"m/c","Elapsed":0,"FailedBuild":"m/c [m/c.test]"}
go: a line of the go tool's own
`

func TestReport(t *testing.T) {
	const failures = `FAIL    20.0 s  m/b
    b_test.go:7: want 1
        got 2
--- FAIL: TestBad (0.00s)
FAIL     0.0 s  m/c
c/c_test.go:3:26: undefined: x
`
	const want = `ok       1.2 s  m/a
` + failures + `go: a line of the go tool's own

slowest packages:
   20.0 s  m/b
    1.2 s  m/a
    0.0 s  m/c

2 tests have passed, in 3 packages

tests that were left out:
      1  there is no browser

2 of 3 packages have failed:
` + failures
	var got strings.Builder
	r := newReport(&got)
	for line := range strings.Lines(printed) {
		r.read([]byte(line))
	}
	r.end()
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
	for _, pkg := range []string{"m/a", "m/b", "m/c"} {
		if len(r.said[pkg]) > 0 || len(r.order[pkg]) > 0 {
			t.Errorf("what %s has said is kept after its end: %q", pkg, r.said[pkg])
		}
	}
}
