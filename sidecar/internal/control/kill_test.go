package control

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// killDir tells the test that it is the process to be killed.
const killDir = "SLUICE_TEST_CACHE_DIR"

func TestKilledWhileSaving(t *testing.T) {
	if dir := os.Getenv(killDir); dir != "" {
		saveForEver(t, dir)
	}
	testkit.Rounds(t, killWhileSaving)
}

func killWhileSaving(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	file := filepath.Join(dir, fileName)
	last := int64(0)
	for range 8 {
		child := exec.Command(os.Args[0], "-test.run=^TestKilledWhileSaving$")
		child.Env = append(os.Environ(), killDir+"="+dir)
		require.NoError(t, child.Start())
		before := last
		xdstest.Soon(t, "a save", func() bool {
			kept, err := readCache(file)
			return err == nil && kept.version("*") > before
		})
		time.Sleep(time.Duration(random.Int64N(int64(5 * time.Millisecond)))) // the kill is to come at any moment
		require.NoError(t, child.Process.Kill())
		_ = child.Wait() // it was killed
		kept, err := readCache(file)
		if err != nil {
			t.Fatalf("after a kill: %v", err)
		}
		if last = kept.version("*"); last <= before {
			t.Errorf("version %d after %d", last, before)
		}
	}
}

// saveForEver goes on from what is saved until it is killed.
func saveForEver(t *testing.T, dir string) {
	file := filepath.Join(dir, fileName)
	version := int64(0)
	if kept, err := readCache(file); err == nil {
		version = kept.version("*")
	}
	for {
		version++
		body, err := proto.Marshal(packOf(settled{"*", version, settingsOf(version%1000 + 1)}))
		require.NoError(t, err)
		accepted := map[string]map[string]*entry{packType: {"*": {version: "v", body: body}}}
		require.NoError(t, writeCache(file, contentOf("i1", policypb.Revision{}, accepted)))
	}
}

// addressEnv tells the test that it is the sidecar to be killed, and where its control plane is.
const addressEnv = "SLUICE_TEST_PLANE"

// An acknowledged update is in force after a kill right then, without a control plane.
func TestKilledRightAfterAnAck(t *testing.T) {
	if address := os.Getenv(addressEnv); address != "" {
		start(t, plane{&xdstest.Server{Address: address}}, in(os.Getenv(killDir)))
		select {} // until the kill
	}
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "t": 1})
	p.Start()
	dir := t.TempDir()
	for version := int64(2); version < 8; version++ {
		p.Forget()
		child := exec.Command(os.Args[0], "-test.run=^TestKilledRightAfterAnAck$")
		child.Env = append(os.Environ(), killDir+"="+dir, addressEnv+"="+p.Address)
		require.NoError(t, child.Start())
		ack := func(typeURL string) func() bool {
			return func() bool {
				return len(p.Requests(func(r *discoveryv3.DeltaDiscoveryRequest) bool {
					return r.GetTypeUrl() == typeURL && r.GetResponseNonce() != ""
				})) > 0
			}
		}
		xdstest.Soon(t, "the start", ack(packType))
		p.Forget()
		p.put(map[string]int64{"t": version})
		xdstest.Soon(t, "an ack", ack(packType))
		require.NoError(t, child.Process.Kill())
		_ = child.Wait() // it was killed
		if next := open(t, plane{newAway()}, in(dir)); next.version("t") != int(version) {
			t.Errorf("killed after the ack of version %d, and begins with %d", version, next.version("t"))
		}
	}
}
