package control

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/sidecar/internal/xds"
	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
	"github.com/sluice-bus/sluice/test/damage"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// in puts the cache of a sidecar into a folder.
func in(dir string) func(*settings) { return func(cfg *settings) { cfg.Dir = dir } }

func TestGoesOnWithoutItsControlPlane(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "t": 2})
	p.peers("replay-peers/0", "i1", "i2", "i3")
	p.Start()
	dir := t.TempDir()
	s := start(t, p, in(dir))
	s.sync(t)
	xdstest.Soon(t, "the peers", func() bool { return s.KnownSidecars() == 3 })
	s.stop()
	p.Stop()

	next := start(t, p, func(cfg *settings) { cfg.Dir, cfg.InstanceSecret = dir, "i1-later" })
	if next.version("t") != 2 || next.version("x") != 1 || !next.Cached() {
		t.Errorf("in force: %+v", next.Policies().Load().List())
	}
	if got := next.source("t"); got != "control-plane (cached)" {
		t.Errorf("source %q", got)
	}
	if next.KnownSidecars() != 3 {
		t.Errorf("%d sidecars, want 3: the last life is over", next.KnownSidecars())
	}

	p.Forget()
	p.put(map[string]int64{"t": 3})
	p.Start()
	next.sync(t)
	xdstest.Soon(t, "the change", func() bool { return next.version("t") == 3 })
	if next.source("*") != "control-plane" || next.source("t") != "control-plane" {
		t.Errorf("sources %+v", next.Policies().Load().List())
	}
	if got := p.Sent(); len(got) != 1 || got[0] != packName("t") {
		t.Errorf("the control plane sent %v, want what changed", got)
	}
}

func TestWhatWasConfirmedIsNotCachedAnyMore(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "t": 2, "u": 2})
	p.Start()
	dir := t.TempDir()
	s := start(t, p, in(dir))
	s.sync(t)
	s.stop()
	bad := policyOf("u", 3)
	bad.settings.Partitions = proto.Int64(0)
	p.Put(packType, map[string]proto.Message{packName("u"): packOf(bad)})
	next := start(t, p, in(dir))
	xdstest.Soon(t, "a refusal", func() bool { return len(p.Requests(xdstest.Refused)) > 0 })
	if next.source("t") != "control-plane (cached)" || next.source("u") != "control-plane (cached)" || next.version("u") != 2 ||
		next.Confirmed() {
		t.Errorf("in force: %+v", next.Policies().Load().List())
	}
	p.put(map[string]int64{"u": 4})
	next.sync(t)
	if next.source("t") != "control-plane" || next.source("u") != "control-plane" || next.version("u") != 4 {
		t.Errorf("in force: %+v", next.Policies().Load().List())
	}
}

func TestSavedSoonAfterAChange(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1})
	p.Start()
	dir := t.TempDir()
	s := start(t, p, in(dir))
	s.sync(t)
	for version := range int64(3) {
		p.put(map[string]int64{"*": version + 2})
		xdstest.Soon(t, "the change on disk", func() bool {
			kept, err := readCache(filepath.Join(dir, fileName))
			return err == nil && kept.version("*") == version+2
		})
	}
}

func TestNothingIsSavedBeforeAllIsKnown(t *testing.T) {
	dir := t.TempDir()
	s := open(t, newPlane(t), in(dir))
	require.NoError(t, s.apply(context.Background(), update(t, policyOf("t", 2))))
	require.NoError(t, s.save(t.Context()))
	if _, err := os.Stat(filepath.Join(dir, fileName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a cache: %v", err)
	}
	if s.version("t") != 8 {
		t.Error("a policy is in force before all are known")
	}
	whole := xds.Update{Version: "0/0", Type: packType, Whole: true}
	require.NoError(t, s.apply(context.Background(), whole))
	if s.version("t") != 2 {
		t.Error("the policy is not in force once all are known")
	}
	noPeers(t, s)
	require.NoError(t, s.save(t.Context()))
	if _, err := os.Stat(filepath.Join(dir, fileName)); err != nil {
		t.Error(err)
	}
}

// update is one pack with a policy as an update.
func update(t testing.TB, p settled) xds.Update {
	t.Helper()
	body, err := proto.Marshal(packOf(p))
	require.NoError(t, err)
	return xds.Update{Version: "0/0", Type: packType, Resources: []xds.Resource{{Name: packName(p.name), Version: "v", Body: body}}}
}

// noPeers says that there are none.
func noPeers(t testing.TB, s *sidecar) {
	t.Helper()
	require.NoError(t, s.apply(context.Background(), xds.Update{Version: "0/0", Type: peersType, Whole: true}))
}

// version is that of a policy that is kept; 0: there is none.
func (k *kept) version(name string) int64 {
	for _, e := range k.accepted[packType] {
		for _, p := range e.policies {
			if p.Name == name {
				return p.Version
			}
		}
	}
	return 0
}

// smallCache is a file with two policies, and peers.
func smallCache(t testing.TB, dir string) []byte {
	t.Helper()
	s := open(t, newPlane(t), in(dir))
	for _, u := range []xds.Update{update(t, policyOf("t", 2)), update(t, policyOf("*", 3))} {
		u.Whole = true
		require.NoError(t, s.apply(context.Background(), u))
	}
	body, err := proto.Marshal(assignment("replay-peers/0", "i2"))
	require.NoError(t, err)
	u := xds.Update{Version: "0/0", Type: peersType, Whole: true,
		Resources: []xds.Resource{{Name: "replay-peers/0", Version: "v", Body: body}}}
	require.NoError(t, s.apply(context.Background(), u))
	require.NoError(t, s.save(t.Context()))
	s.stop()
	data, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	return data
}

func TestDamagedCachesAreIgnored(t *testing.T) {
	data := smallCache(t, t.TempDir())
	if _, err := decodeCache(data); err != nil {
		t.Fatal(err)
	}
	for i := range data {
		if _, err := decodeCache(data[:i]); err == nil {
			t.Errorf("the first %d of %d bytes were taken", i, len(data))
		}
		for bit := range 8 {
			damaged := append([]byte(nil), data...)
			damaged[i] ^= 1 << bit
			if _, err := decodeCache(damaged); err == nil {
				t.Errorf("bit %d of byte %d was flipped, and it was taken", bit, i)
			}
		}
	}
	if _, err := decodeCache(append(data, 0)); err == nil {
		t.Error("a byte more was taken")
	}

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, fileName), data[:len(data)/2], 0o600))
	s := open(t, newPlane(t), in(dir))
	if s.Cached() || s.version("t") != 8 || s.KnownSidecars() != 1 {
		t.Error("half of a cache acts")
	}
	s.stop()
	if !strings.Contains(s.logged.String(), "is ignored") {
		t.Errorf("logged %q", s.logged)
	}
}

// One change of one copy, whatever it is, leaves the newest policies in force.
func TestDamage(t *testing.T) {
	testkit.Rounds(t, func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		contents := func(dir string) map[string][]byte {
			files := map[string][]byte{}
			for _, name := range []string{fileName, copyName} {
				text, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err)
				files[name] = text
			}
			return files
		}
		dir := t.TempDir()
		smallCache(t, dir)
		older := contents(dir)
		s := open(t, newPlane(t), in(dir))
		require.NoError(t, s.apply(t.Context(), update(t, policyOf("t", 7))))
		require.NoError(t, s.save(t.Context()))
		s.stop()
		now := contents(dir)
		for name := range now {
			for kind, change := range damage.Kinds {
				then, ok := change(rng, now[name], older[name])
				if !ok {
					continue
				}
				for other, text := range now {
					require.NoError(t, os.WriteFile(filepath.Join(dir, other), text, 0o600))
				}
				require.NoError(t, os.Remove(filepath.Join(dir, name)))
				if then != nil {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), then, 0o600))
				}
				s := open(t, newPlane(t), in(dir))
				if s.version("t") != 7 || s.version("x") != 3 || s.KnownSidecars() != 2 {
					t.Errorf("%s, %s: %+v", name, kind, s.Policies().Load().List())
				}
				s.stop()
			}
		}
	})
}

// An update that cannot be written is in force, and is not acknowledged before it is written.
func TestAFullDiskIsToldToTheControlPlane(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 1, "t": 2})
	p.Start()
	dir := filepath.Join(t.TempDir(), "not yet")
	s := start(t, p, in(dir))
	s.sync(t)
	if s.version("t") != 2 || s.version("x") != 1 {
		t.Errorf("in force: %+v", s.Policies().Load().List())
	}
	xdstest.Soon(t, "the control plane to hear of it", func() bool { return len(p.Requests(xdstest.Refused)) >= 1 })
	if reason := p.Requests(xdstest.Refused)[0].GetErrorDetail().GetMessage(); !strings.Contains(reason,
		"in force, and not kept for the next start: ") {
		t.Errorf("told %q", reason)
	}
	acked := func(r *discoveryv3.DeltaDiscoveryRequest) bool {
		return r.GetResponseNonce() != "" && r.GetErrorDetail() == nil
	}
	if n := len(p.Requests(acked)); n != 0 {
		t.Errorf("%d responses are acknowledged that are not kept", n)
	}
	p.Forget()
	p.put(map[string]int64{"t": 0})
	xdstest.Soon(t, "a change", func() bool { return s.version("t") == 1 })
	require.NoError(t, os.Mkdir(dir, 0o700))
	if err := s.save(t.Context()); err != nil { // as it does by itself after a while
		t.Fatal(err)
	}
	xdstest.Soon(t, "acks", func() bool { return len(p.Requests(acked)) >= 1 })
	s.stop()
	if kept, err := readCache(filepath.Join(dir, fileName)); err != nil || kept.version("t") != 0 {
		t.Errorf("kept %+v, %v", kept, err)
	}
}

// A kill in the middle of a save leaves a new file that is not whole beside the old one.
func TestAnInterruptedSaveLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	data := smallCache(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, fileName+".new"), data[:40], 0o600))
	s := open(t, newPlane(t), in(dir))
	if s.version("t") != 2 || s.version("x") != 3 || s.KnownSidecars() != 2 {
		t.Error("the old file does not act")
	}
	s.mu.Lock()
	s.touch()
	s.mu.Unlock()
	require.NoError(t, s.save(t.Context()))
	if _, err := os.Stat(filepath.Join(dir, fileName+".new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the new file is still there: %v", err)
	}
}

func TestSavesAreHeldTogetherAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "not yet")
		s := open(t, plane{newAway()}, in(dir))
		defer s.stop()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.keep(ctx) }()
		defer func() { <-done }()
		defer cancel()
		u := update(t, policyOf("*", 3))
		u.Whole = true
		require.NoError(t, s.apply(ctx, u))
		noPeers(t, s)
		time.Sleep(saveAfter + retrySaveAfter + time.Second) // two failures
		synctest.Wait()
		if n := strings.Count(s.logged.String(), "cannot be kept"); n != 1 {
			t.Errorf("%d failures logged, want 1\n%s", n, s.logged)
		}
		require.NoError(t, os.Mkdir(dir, 0o700))
		saved := func() bool {
			synctest.Wait()
			_, err := os.Stat(filepath.Join(dir, fileName))
			return err == nil
		}
		time.Sleep(retrySaveAfter)
		if !saved() {
			t.Error("not saved once it is possible")
		}
		require.NoError(t, os.Remove(filepath.Join(dir, fileName)))
		time.Sleep(time.Hour)
		if saved() {
			t.Error("saved, and nothing had changed")
		}
		s.mu.Lock()
		s.touch() // as where topics are forgotten
		s.mu.Unlock()
		time.Sleep(saveAfter - time.Millisecond)
		if saved() {
			t.Error("saved at once")
		}
		time.Sleep(2 * time.Millisecond)
		if !saved() {
			t.Error("not saved in time")
		}
	})
}
