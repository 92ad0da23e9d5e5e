package main

import (
	"os"
	"testing"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

// What the demo is made of, its processes and its end, is in test/demo.
func TestDemoSaysWhatItLacks(t *testing.T) {
	none, scratch := &sluicetest.Sidecar{}, t.TempDir()
	t.Setenv("TMPDIR", scratch)
	t.Setenv("PATH", "")
	run(t, none, "", "demo").wantFailure(t, 1, "sluice-controlplane is neither beside this program nor on PATH")
	run(t, none, "", "demo", "--store", "some").wantFailure(t, 2, "--store: the demo takes a MongoDB")
	for _, store := range []string{"mongodb://h:1,g:2", "mongodb://h/?replicaSet=a/b", "mongodb+srv://h/"} {
		run(t, none, "", "demo", "--store", store).wantFailure(t, 2, "--store names no database")
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
