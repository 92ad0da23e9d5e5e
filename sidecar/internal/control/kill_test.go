package control

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/controlplane/policypb"
	"github.com/sluice-bus/sluice/internal/soak"
	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
)

// killDir tells the test that it is the process to be killed.
const killDir = "SLUICE_TEST_CACHE_DIR"

func TestKilledWhileSaving(t *testing.T) {
	if dir := os.Getenv(killDir); dir != "" {
		saveForEver(t, dir)
	}
	soak.Rounds(t, killWhileSaving)
}

func killWhileSaving(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	file := filepath.Join(dir, fileName)
	last := int64(0)
	for range 8 {
		child := exec.Command(os.Args[0], "-test.run=^TestKilledWhileSaving$")
		child.Env = append(os.Environ(), killDir+"="+dir)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		before := last
		xdstest.Soon(t, "a save", func() bool {
			kept, err := readCache(file)
			return err == nil && kept.held[globType]["*"].number > before
		})
		time.Sleep(time.Duration(random.Int64N(int64(5 * time.Millisecond)))) // the kill is to come at any moment
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait() // it was killed
		kept, err := readCache(file)
		if err != nil {
			t.Fatalf("after a kill: %v", err)
		}
		if last = kept.held[globType]["*"].number; last <= before {
			t.Errorf("version %d after %d", last, before)
		}
	}
}

// saveForEver goes on from what is saved until it is killed.
func saveForEver(t *testing.T, dir string) {
	file := filepath.Join(dir, fileName)
	version := int64(0)
	if kept, err := readCache(file); err == nil {
		version = kept.held[globType]["*"].number
	}
	for {
		version++
		body, err := proto.Marshal(&policypb.GlobPolicy{Name: "*", Version: version, Settings: settingsOf(version%1000 + 1)})
		if err != nil {
			t.Fatal(err)
		}
		held := map[string]map[string]*entry{globType: {"*": {version: "v", body: body}}}
		if err := writeCache(file, contentOf("i1", held)); err != nil {
			t.Fatal(err)
		}
	}
}
