// Package testcache tells go test of what a result depends on beyond the test's own code: programs that the module is built
// into, tools of the machine. go test takes a result from its cache where the variables that the test reads and the module's
// files that it opens are as they were; what a test starts it does not see. It must not know what tests depend on.
package testcache

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Folder is where tests keep what is built for them, below the root.
var Folder = filepath.Join("bin", "test")

// Variable is the environment variable that has the digest of what tests depend on under a name. The program testinputs sets
// it for make test.
func Variable(name string) string {
	return "TESTINPUT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Input makes the result depend on the input of a name, and returns its digest. It is "" if the digest was not computed
// before the tests, as when a package's tests are run by hand: the result is not cached then.
func Input(name string) (digest string, err error) {
	if digest = os.Getenv(Variable(name)); digest == "" {
		err = Never()
	}
	return digest, err
}

// Never keeps go test from caching the result: it does not if the test has opened a file of the module that has changed just
// now, or is about to.
func Never() error {
	root, err := above("go.mod") // go test looks at the files of this module alone
	if err != nil {
		return err
	}
	name := filepath.Join(root, Folder, "never-cached")
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	tomorrow := time.Now().AddDate(0, 0, 1)
	return errors.Join(f.Close(), os.Chtimes(name, tomorrow, tomorrow))
}

// Root is the folder of the workspace that the test belongs to, which is the root module's.
func Root() (string, error) { return above("go.work") }

// above is the nearest folder above the test that has the file.
func above(file string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, file)); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", errors.New("there is no " + file + " above " + dir)
		}
	}
}
