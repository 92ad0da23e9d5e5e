package control

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/xds"
	"github.com/sluice-bus/sluice/test/require"
)

// sound fails if something that was taken is not whole and valid.
func sound(t *testing.T, s *policy.Snapshot, names ...string) {
	t.Helper()
	for _, name := range names {
		e := s.Topic(name)
		again, err := policypb.FromEffective(e).Effective()
		if err != nil || *again != *e {
			t.Fatalf("%s has %+v, which is not valid: %v", name, e, err)
		}
	}
}

// FuzzApply gives two resources with any bytes to a sidecar that has good ones: both act, or there
// is a reason and what was there stays.
func FuzzApply(f *testing.F) {
	good, err := proto.Marshal(packOf(policyOf("t", 5), policyOf("u", 6)))
	require.NoError(f, err)
	glob, err := proto.Marshal(packOf(policyOf("t*", 5)))
	require.NoError(f, err)
	peers, err := proto.Marshal(assignment("t", "i2", "i3"))
	require.NoError(f, err)
	f.Add(uint8(0), "t", good, "u", good)
	f.Add(uint8(0), "t*", glob, "u*", []byte{})
	f.Add(uint8(1), "t", peers, "t2", peers)
	f.Add(uint8(0), "t", []byte{0xff}, "u", good)
	f.Fuzz(func(t *testing.T, which uint8, name1 string, body1 []byte, name2 string, body2 []byte) {
		s := open(t, plane{newAway()}, nil)
		defer s.stop()
		ctx := context.Background()
		for _, u := range []xds.Update{update(t, policyOf("t", 2)), update(t, policyOf("*", 3))} {
			u.Whole = true
			require.NoError(t, s.apply(ctx, u))
		}
		before := s.Policies().Load()
		u := xds.Update{Version: "0/0", Type: []string{packType, peersType}[which%2], Resources: []xds.Resource{
			{Name: name1, Version: "1", Body: body1}, {Name: name2, Version: "1", Body: body2}}}
		err := s.apply(ctx, u)
		switch {
		case err != nil && err.Error() == "":
			t.Fatal("refused without a reason")
		case err != nil && (s.Policies().Load() != before || s.KnownSidecars() != 1):
			t.Fatal("refused, and something changed")
		}
		sound(t, s.Policies().Load(), name1, name2, "t", "u", "t1")
	})
}

// FuzzCache reads a file with any bytes behind a right checksum, and any bytes at all.
func FuzzCache(f *testing.F) {
	const header = cacheKind + cacheFormat + "\n"
	data := smallCache(f, f.TempDir())
	f.Add(data)
	f.Add(data[len(header)+32:])
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := decodeCache(data); err == nil && string(data[:len(header)]) != header {
			t.Fatal("taken without the header")
		}
		kept, err := decodeContent(data)
		if err != nil {
			return
		}
		for _, e := range kept.accepted[packType] {
			for _, p := range e.policies {
				sound(t, policy.NewResolvedSnapshot([]policy.Resolved{*p}), p.Name)
			}
		}
	})
}

// A cache with something in it that is refused is ignored as a whole.
func TestACacheWithABadPolicyIsIgnored(t *testing.T) {
	bad := policyOf("a*", 2)
	bad.settings.Partitions = proto.Int64(-5)
	accepted := map[string]map[string]*entry{packType: {}}
	for _, p := range []settled{bad, policyOf("*", 1)} {
		body, err := proto.Marshal(packOf(p))
		require.NoError(t, err)
		accepted[packType][packName(p.name)] = &entry{version: "1", body: body}
	}
	dir := t.TempDir()
	require.NoError(t, writeCache(filepath.Join(dir, fileName), contentOf("i0", policypb.Revision{}, accepted)))
	next := open(t, plane{newAway()}, in(dir))
	if next.Cached() || next.version("x") != 8 {
		t.Error("half of a cache acts")
	}
	if _, err := os.Stat(filepath.Join(dir, fileName)); err != nil {
		t.Errorf("it should stay until there is another: %v", err)
	}
}

// A cache of another format is ignored, and the log names both formats.
func TestACacheOfAnotherFormatIsIgnored(t *testing.T) {
	dir := t.TempDir()
	_, rest, _ := bytes.Cut(smallCache(t, dir), []byte("\n"))
	text := append([]byte(cacheKind+"2\n"), rest...)
	path := filepath.Join(dir, fileName)
	require.NoError(t, errors.Join(os.WriteFile(path, text, 0o600), os.WriteFile(filepath.Join(dir, copyName), text, 0o600)))
	next := open(t, plane{newAway()}, in(dir))
	if logged := next.logged.String(); next.Cached() ||
		!strings.Contains(logged, `it has format \"2\", and this program reads and writes format \"1\"`) {
		t.Errorf("taken, or logged as %s", logged)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
		t.Errorf("it should stay until there is another: %v", err)
	}
}
