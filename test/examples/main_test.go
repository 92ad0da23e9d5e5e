// Package examples runs every example as a reader would, with its one command.
package examples

import (
	"log"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests in the folder of the examples.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../examples"); err != nil {
		log.Fatal(err)
	}
	goleak.VerifyTestMain(m)
}
