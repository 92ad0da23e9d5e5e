package boltstore_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/controlplane/internal/store/boltstore"
	"github.com/sluice-bus/sluice/test/damage"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestDamage changes one file of a data folder in one way, again and again, and opens that: it has
// everything, or is refused with the file's name.
func TestDamage(t *testing.T) { testkit.Rounds(t, damageFolder) }

func damageFolder(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	s := open(t, dir)
	fill := func(from, to int) {
		for i := from; i <= to; i++ {
			change := store.Commit{Revision: int64(i), Token: fmt.Sprint(i), Reason: strings.Repeat("x", rng.IntN(3000))}
			require.NoError(t, s.Append(t.Context(), change))
			require.NoError(t, s.Enter(t.Context(), store.RosterEntry{Key: fmt.Sprint(i % 20), Life: fmt.Sprint(i), Doc: []byte("{}")}))
		}
	}
	fill(1, 60)
	_, err := s.Secret(t.Context(), "key", []byte("secret"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	older := contents(t, dir)
	s = open(t, dir)
	fill(61, 80)
	want := entries(t, s)
	require.NoError(t, s.Close())
	now := contents(t, dir)
	counts := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		for kind, change := range damage.Kinds {
			for range 10 {
				then, ok := change(rng, now[name], older[name])
				if !ok {
					continue
				}
				damaged := t.TempDir()
				for other, text := range now {
					if other == name {
						text = then
					}
					if text != nil {
						require.NoError(t, os.WriteFile(filepath.Join(damaged, other), text, 0o600))
					}
				}
				s, err := boltstore.Open(damaged)
				switch {
				case err != nil && !strings.Contains(err.Error(), boltstore.FileName):
					t.Errorf("%s, %s: the refusal names no file: %v", name, kind, err)
				case err != nil:
					counts["refused"]++
				default:
					if got := entries(t, s); !reflect.DeepEqual(got, want) {
						t.Errorf("%s, %s: silent", name, kind)
					}
					counts["whole"]++
					require.NoError(t, s.Append(t.Context(), store.Commit{Revision: 81}))
					require.NoError(t, s.Close())
				}
			}
		}
	}
	t.Logf("%v", counts)
}

// contents are the files of a folder.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, n := range names {
		text, err := os.ReadFile(filepath.Join(dir, n.Name()))
		require.NoError(t, err)
		files[n.Name()] = text
	}
	return files
}

// entries are all that a store has.
func entries(t *testing.T, s *boltstore.Store) []any {
	t.Helper()
	var commits []store.Commit
	for last := int64(0); ; last = commits[len(commits)-1].Revision {
		page, err := s.After(t.Context(), last)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		commits = append(commits, page...)
	}
	roster, err := s.Entered(context.Background())
	require.NoError(t, err)
	secret, err := s.Secret(t.Context(), "key", []byte("another"))
	require.NoError(t, err)
	return []any{commits, roster, secret}
}
