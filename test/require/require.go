// Package require ends a test at what it cannot do without.
package require

// T is a test, a benchmark, or a property's.
type T interface {
	Helper()
	Fatal(args ...any)
}

// NoError ends the test if err is not nil.
func NoError(t T, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
