package testkit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// BuildFolder has the files built for tests, below the root.
var BuildFolder = filepath.Join("bin", "test")

// InputVariable is the environment variable with the digest of a named input. The program testinputs
// sets it for make test.
func InputVariable(name string) string {
	return "TESTINPUT_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Input makes the result depend on the input of a name, and returns its digest. It is "" if the
// digest was not computed before the tests, as when a package's tests are run by hand: the result
// is not cached then.
func Input(name string) (digest string, err error) {
	if digest = os.Getenv(InputVariable(name)); digest == "" {
		err = NeverCache()
	}
	return digest, err
}

// NeverCache keeps go test from caching the result: go test does not cache one if the test opened a file
// of the module that changed just now, or is about to.
func NeverCache() error {
	root, err := above("go.mod") // go test looks at the files of this module alone
	if err != nil {
		return err
	}
	name := filepath.Join(root, BuildFolder, "never-cached")
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

// Root is the folder of the test's workspace, which is the root module's.
func Root() (string, error) { return above("go.work") }

// above is the nearest folder above the test with the file.
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
